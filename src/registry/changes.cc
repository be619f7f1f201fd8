// SPDX-License-Identifier: Apache-2.0
#include "registry/changes.h"

#include <fmt/format.h>

#include <cstddef>

#include "base/lists.h"
#include "base/results.h"
#include "base/text.h"

namespace yard {

Changes::Changes() : list_(std::make_unique<detail::ChangeList>()) {}
Changes::~Changes() = default;
Changes::Changes(Changes&&) noexcept = default;
Changes& Changes::operator=(Changes&&) noexcept = default;

namespace {
// Keeps the first error, which apply() returns.
template <class Step, class T, class... Rest>
void put(detail::ChangeList& list, Result<T> read, Rest... rest) {
  if (read.ok())
    list.steps.push_back(Step{*std::move(read), rest...});
  else if (list.problem.ok())
    list.problem = std::move(read).status();
}

// A kernel that names no backend belongs to the one that its id begins with.
void put_kernel(detail::ChangeList& list, const yard_kernel_t& kernel, std::shared_ptr<void> keep,
                bool replaces) {
  std::string backend;
  if (kernel.size >= offsetof(yard_kernel_t, summary) && kernel.backend == nullptr &&
      kernel.id != nullptr) {
    backend = kernel.id;
    backend.resize(std::min(backend.find('.'), backend.size()));
    yard_backend_t d{};
    d.size = sizeof d, d.name = backend.c_str();
    put<registry::AddBackend>(list, registry::read_backend(d, {}), true);
  }
  const char* const only = backend.empty() ? nullptr : backend.c_str();
  put<registry::AddKernel>(list, registry::read_kernel(kernel, std::move(keep), only), replaces);
}
}  // namespace

Changes& Changes::add_op(const yard_op_t& op, std::shared_ptr<void> keep) {
  return put<registry::AddOp>(*list_, registry::read_op(op, std::move(keep))), *this;
}
Changes& Changes::add_backend(const yard_backend_t& backend, std::shared_ptr<void> keep) {
  return put<registry::AddBackend>(*list_, registry::read_backend(backend, std::move(keep))), *this;
}
Changes& Changes::add_kernel(const yard_kernel_t& kernel, std::shared_ptr<void> keep) {
  return put_kernel(*list_, kernel, std::move(keep), false), *this;
}
Changes& Changes::add_function(const yard_function_t& function, std::shared_ptr<void> keep) {
  return put<registry::AddFunction>(*list_, registry::read_function(function, std::move(keep))),
         *this;
}
Changes& Changes::replace_kernel(const yard_kernel_t& kernel, std::shared_ptr<void> keep) {
  return put_kernel(*list_, kernel, std::move(keep), true), *this;
}
Changes& Changes::add_plugin(const yard_plugin_t& plugin, std::shared_ptr<void> keep) {
  Status s = registry::read_plugin(plugin, keep, list_->steps);
  if (!s.ok() && list_->problem.ok()) list_->problem = std::move(s);
  return *this;
}
Changes& Changes::remove_kernel(std::string op, std::string id) {
  return list_->steps.push_back(registry::RemoveKernel{std::move(op), std::move(id)}), *this;
}
Changes& Changes::remove_backend(std::string name) {
  return list_->steps.push_back(registry::RemoveBackend{std::move(name)}), *this;
}
Changes& Changes::remove_op(std::string name) {
  return list_->steps.push_back(registry::RemoveOp{std::move(name)}), *this;
}
Changes& Changes::reprobe(std::string backend) {
  return list_->steps.push_back(registry::Reprobe{std::move(backend)}), *this;
}

}  // namespace yard

namespace yard::registry {

const OpRecord* State::find(std::string_view op) const noexcept {
  const auto it = op_records.find(op);
  return it == op_records.end() ? nullptr : it->second.get();
}

std::vector<std::string> State::backend_names() const {
  std::set<std::string> names;
  for (const auto& [name, backend] : backends) names.insert(name);
  for (const auto& f : functions) names.insert(f->backend);
  return {names.begin(), names.end()};
}

namespace {

Status conflict(std::string message) { return Status(Code::kConflict, std::move(message)); }

template <class Map>
Status not_found(std::string message, const std::string& name, const Map& map,
                 Code code = Code::kNotFound) {
  return Status(code, message + base::did_you_mean(name, base::keys(map)));
}

bool same_place(const Function& a, const Function& b) {
  return a.name == b.name && a.group == b.group && a.backend == b.backend;
}

// Equal records may be registered again.
template <class Record>
Status check_equal(const std::string& subject, const Record& known, const Record& given) {
  const std::string found = difference(known, given);
  if (found.empty()) return {};
  return conflict(fmt::format("{} is registered already and differs: {}", subject, found));
}

class Applier {
 public:
  explicit Applier(const State& state) : next_(state) {}

  Status step(const AddOp& s) {
    const std::string& name = s.op->name;
    if (const OpRecord* f = next_.find(name))
      return check_equal(fmt::format("op '{}'", name), *f->op, *s.op);
    s.op->index = next_.indices.emplace(s.op->schema, next_.index_count()).first->second;
    next_.op_records[name] = std::make_shared<OpRecord>(OpRecord{s.op, {}});
    done_.ops.insert(name);
    return {};
  }

  Status step(const AddBackend& s) {
    const auto [known, is_new] = next_.backends.try_emplace(s.backend->name, s.backend);
    if (is_new || s.is_default) return {};
    return check_equal(fmt::format("backend '{}'", s.backend->name), *known->second, *s.backend);
  }

  Status step(const AddFunction& s) {
    const Function& f = *s.function;
    for (const auto& known : next_.functions)
      if (same_place(*known, f))
        return check_equal(
            fmt::format("function '{}' of group '{}' by backend '{}'", f.name, f.group, f.backend),
            *known, f);
    next_.functions.push_back(s.function);
    return {};
  }

  Status step(const AddKernel& s) {
    const Kernel& k = *s.kernel;
    const auto backend = next_.backends.find(k.backend_name);
    if (backend == next_.backends.end())
      return not_found(fmt::format("kernel '{}' of op '{}' belongs to backend '{}', which is not "
                                   "known",
                                   k.id, k.op, k.backend_name),
                       k.backend_name, next_.backends);
    const OpRecord* f = next_.find(k.op);
    if (f == nullptr)
      return not_found(fmt::format("kernel '{}' is for op '{}', which is not known", k.id, k.op),
                       k.op, next_.op_records, Code::kUnknownOp);
    const auto old = f->kernels.find(k.id);
    if (s.replaces && old == f->kernels.end())
      return not_found(fmt::format("op '{}' has no kernel '{}' to replace", k.op, k.id), k.id,
                       f->kernels);
    if (!s.replaces && old != f->kernels.end())
      return check_equal(fmt::format("kernel '{}' of op '{}'", k.id, k.op), *old->second, k);
    YARD_RETURN_IF_ERROR(check_reference(k, *f->op));
    YARD_RETURN_IF_ERROR(resolve_params(*s.kernel, *f->op->program));
    YARD_RETURN_IF_ERROR(check_kernel(k, *backend->second, *f->op->program));
    s.kernel->backend = backend->second;
    if (old != f->kernels.end()) done_.removed.push_back(old->second);
    edit(k.op).kernels[k.id] = s.kernel;
    return {};
  }

  Status step(const RemoveKernel& s) {
    const OpRecord* f = next_.find(s.op);
    if (f == nullptr) return unknown_op(s.op);
    const auto it = f->kernels.find(s.id);
    if (it == f->kernels.end())
      return not_found(fmt::format("op '{}' has no kernel '{}'", s.op, s.id), s.id, f->kernels);
    remove(it->second);
    return {};
  }

  Status step(const RemoveBackend& s) {
    const size_t before = done_.removed.size();
    remove_functions([&](const Function& f) { return f.backend == s.name; });
    for (const auto& k : kernels_of(s.name)) remove(k);
    drop_backend(s.name);
    return done_.removed.size() > before ? Status() : unknown_backend(s.name);
  }

  Status step(const RemoveOp& s) {
    const OpRecord* f = next_.find(s.name);
    if (f == nullptr) return unknown_op(s.name);
    for (const auto& [id, kernel] : f->kernels) done_.removed.push_back(kernel);
    done_.removed.push_back(f->op);
    next_.op_records.erase(s.name);
    edited_.erase(s.name);
    done_.ops.insert(s.name);
    return {};
  }

  Status step(const Reprobe& s) {
    const auto it = next_.backends.find(s.backend);
    if (it == next_.backends.end()) return unknown_backend(s.backend);
    const auto backend = std::make_shared<Backend>(*it->second);
    backend->probes = std::make_shared<Backend::Probes>();
    it->second = backend;
    for (const auto& k : kernels_of(s.backend))
      edit(k->op).kernels[k->id] = on_backend(*k, backend);
    return {};
  }

  Status step(const RemoveKept& s) {
    for (const std::string& op : s.must_serve)
      if (const auto it = next_.op_records.find(op); it != next_.op_records.end())
        must_serve_.push_back(it->second);
    const auto is_kept = [&](const auto& record) { return record.keep.get() == s.keep; };
    for (const auto& k : kernels_that(is_kept)) remove(k);
    YARD_RETURN_IF_ERROR(set_aside(is_kept, s.replaced));
    const State before = next_;
    for (const auto& [name, op_record] : before.op_records)
      if (is_kept(*op_record->op)) YARD_RETURN_IF_ERROR(step(RemoveOp{name}));
    for (const auto& [name, backend] : before.backends)
      if (is_kept(*backend)) drop_backend(name);
    if (s.replaced) function_order_ = next_.functions;
    remove_functions(is_kept);
    return {};
  }

  Result<Applied> finish() {
    for (const Dependent& d : aside_) YARD_RETURN_IF_ERROR(put_back(d));
    YARD_RETURN_IF_ERROR(check_served());
    if (!function_order_.empty()) restore_order();
    done_.state = std::make_shared<const State>(std::move(next_));
    return std::move(done_);
  }

 private:
  // A kernel of another owner that depends on an op or backend that is being replaced.
  struct Dependent {
    std::shared_ptr<const Kernel> kernel;
    std::shared_ptr<const Op> op;
  };
  using Kernels = std::vector<std::shared_ptr<const Kernel>>;

  static Status depends(const char* what, const std::string& name, const Kernel& k,
                        const char* why) {
    return conflict(
        fmt::format("{} '{}' {}: kernel '{}' of op '{}', of backend '{}', depends on it", what,
                    name, why, k.id, k.op, k.backend_name));
  }

  // Sets aside other owners' kernels on ops and backends that go. Fails unless `replaced`.
  template <class F>
  Status set_aside(const F& goes, bool replaced) {
    for (const auto& k : kernels_that([](const Kernel&) { return true; })) {
      const auto op = next_.find(k->op)->op;
      if (!goes(*op) && !goes(*k->backend)) continue;
      if (!replaced)
        return goes(*op) ? depends("op", k->op, *k, "cannot go")
                         : depends("backend", k->backend_name, *k, "cannot go");
      aside_.push_back({k, op});
      edit(k->op).kernels.erase(k->id);
    }
    return {};
  }

  Status put_back(const Dependent& d) {
    const Kernel& k = *d.kernel;
    const OpRecord* f = next_.find(k.op);
    if (f == nullptr) return depends("op", k.op, k, "is missing in the replacement");
    if (f->op->schema != d.op->schema)
      return depends("op", k.op, k, "has another schema in the replacement");
    const auto backend = next_.backends.find(k.backend_name);
    if (backend == next_.backends.end())
      return depends("backend", k.backend_name, k, "is missing in the replacement");
    if (backend->second != k.backend) return step(AddKernel{on_backend(k, backend->second)});
    if (f->kernels.contains(k.id))
      return conflict(
          fmt::format("the replacement has kernel '{}' of op '{}', which backend '{}' provides",
                      k.id, k.op, k.backend_name));
    edit(k.op).kernels[k.id] = d.kernel;
    return {};
  }

  // The error lists every op that callers would miss.
  Status check_served() const {
    std::string problems;
    for (const auto& before : must_serve_) {
      const std::string& name = before->op->name;
      const OpRecord* const now = next_.find(name);
      std::string why;
      if (now == nullptr)
        why = "is missing";
      else if (now->op->schema != before->op->schema)
        why = fmt::format("has the schema {} instead of {}", now->op->schema, before->op->schema);
      else if (now->kernels.empty() && !before->kernels.empty())
        why = "has no kernel left";
      if (!why.empty())
        problems += fmt::format("{}op '{}' {}", problems.empty() ? "" : "; ", name, why);
    }
    return problems.empty() ? Status() : conflict("calls would fail: " + problems);
  }

  // Earlier functions keep their places, which decide between equal priorities.
  void restore_order() {
    const auto place = [&](const std::shared_ptr<const Function>& f) {
      return std::ranges::find_if(function_order_,
                                  [&](const auto& b) { return same_place(*b, *f); });
    };
    std::ranges::stable_sort(next_.functions, {}, place);
  }

  // Copies the kernel for another record of its backend.
  static std::shared_ptr<Kernel> on_backend(const Kernel& k,
                                            std::shared_ptr<const Backend> backend) {
    auto kernel = std::make_shared<Kernel>(k);
    kernel->backend = std::move(backend);
    return kernel;
  }

  void remove(std::shared_ptr<const Kernel> kernel) {
    done_.removed.push_back(kernel);
    edit(kernel->op).kernels.erase(kernel->id);
  }
  void drop_backend(const std::string& name) {
    const auto it = next_.backends.find(name);
    if (it == next_.backends.end()) return;
    done_.removed.push_back(it->second);
    next_.backends.erase(it);
  }
  template <class F>
  void remove_functions(const F& goes) {
    std::erase_if(next_.functions, [&](const std::shared_ptr<const Function>& f) {
      if (!goes(*f)) return false;
      done_.removed.push_back(f);
      return true;
    });
  }
  Status unknown_op(const std::string& name) {
    return not_found(fmt::format("op '{}' is not known", name), name, next_.op_records,
                     Code::kUnknownOp);
  }
  Status unknown_backend(const std::string& name) {
    return not_found(fmt::format("backend '{}' is not known", name), name, next_.backends);
  }

  // Copies the op record on first use.
  OpRecord& edit(const std::string& op) {
    auto& copy = edited_[op];
    done_.ops.insert(op);
    if (copy == nullptr)
      next_.op_records[op] = copy = std::make_shared<OpRecord>(*next_.op_records[op]);
    return *copy;
  }

  template <class F>
  Kernels kernels_that(const F& fit) const {
    Kernels found;
    for (const auto& [op, op_record] : next_.op_records)
      for (const auto& [id, kernel] : op_record->kernels)
        if (fit(*kernel)) found.push_back(kernel);
    return found;
  }
  Kernels kernels_of(const std::string& backend) const {
    return kernels_that([&](const Kernel& k) { return k.backend_name == backend; });
  }

  // Other kernels are compared with the reference, so it must have the origin of the op.
  static Status check_reference(const Kernel& k, const Op& op) {
    if (k.kind != Kind::kReference || k.origin == op.origin) return {};
    return conflict(fmt::format(
        "kernel '{}' of {} has kind reference, and op '{}' is defined by {}: expected kind default "
        "or vendor, as only what defines an op may define its reference",
        k.id, k.origin.shown(), k.op, op.origin.shown()));
  }

  State next_;
  Applied done_;
  std::vector<Dependent> aside_;
  std::vector<std::shared_ptr<const Function>> function_order_;  // before a replacement
  std::vector<std::shared_ptr<const OpRecord>> must_serve_;
  std::map<std::string, std::shared_ptr<OpRecord>> edited_;
};

}  // namespace

Result<Applied> apply(const State& state, const std::vector<Step>& steps) {
  Applier applier(state);
  for (const Step& step : steps)
    if (Status s = std::visit([&](const auto& x) { return applier.step(x); }, step); !s) return s;
  return applier.finish();
}

}  // namespace yard::registry
