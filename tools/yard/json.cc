// SPDX-License-Identifier: Apache-2.0
#include "json.h"

#include <utility>
#include <vector>

namespace yard::tool {
namespace {

// Builds a value from the parser's events in linear time. Json::parse() with a callback looks at
// all siblings whenever an object ends, and inserting into a Json object searches all of its keys.
class Reader final : public Json::json_sax_t {
 public:
  Json take() { return std::move(root_); }

  bool null() override { return put({}); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string&) override { return put(value); }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool key(std::string& value) override { return key_ = std::move(value), true; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  // Json copies and frees values recursively, so the depth must be limited.
  static constexpr size_t kDeepest = 64;

  bool put(Json value) {
    if (left_out_ > 0) return true;
    if (open_.empty()) {
      last_ = &(root_ = std::move(value));
    } else if (open_.back()->is_array()) {
      last_ = &open_.back()->get_ref<Json::array_t&>().emplace_back(std::move(value));
    } else {
      Json::object_t::Container& members = open_.back()->get_ref<Json::object_t&>();
      last_ = &members.emplace_back(std::move(key_), std::move(value)).second;
    }
    return true;
  }
  bool open(Json value) {
    if (left_out_ > 0 || open_.size() >= kDeepest) return ++left_out_, true;
    put(std::move(value));
    open_.push_back(last_);
    return true;
  }
  bool close() {
    left_out_ > 0 ? --left_out_ : (open_.pop_back(), 0);
    return true;
  }

  Json root_;
  Json* last_ = nullptr;
  std::vector<Json*> open_;  // the unfinished objects and arrays, outermost first
  size_t left_out_ = 0;      // unfinished objects and arrays that are too deep
  std::string key_;
};

}  // namespace

Json parse_json(std::string_view text) {
  Reader reader;
  return Json::sax_parse(text, &reader) ? reader.take() : Json(Json::value_t::discarded);
}

}  // namespace yard::tool
