// SPDX-License-Identifier: Apache-2.0
// The structs of DLPack 1.3 by which Python libraries exchange tensors.
#pragma once

#include <yard/abi.h>

namespace yard::python {

struct DlTensor {  // yard_tensor_t begins with these members
  void* data;
  yard_device_t device;
  int32_t ndim;
  yard_dtype_t dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct DlManaged {  // in a capsule "dltensor"
  static constexpr const char* kName = "dltensor";
  static constexpr const char* kUsedName = "used_dltensor";
  DlTensor t;
  void* context;
  void (*deleter)(DlManaged*);
};

struct DlVersion {
  uint32_t major, minor;
};
inline constexpr uint64_t kDlReadOnly = 1;

struct DlManagedVersioned {  // in a capsule "dltensor_versioned"
  static constexpr const char* kName = "dltensor_versioned";
  static constexpr const char* kUsedName = "used_dltensor_versioned";
  DlVersion version;
  void* context;
  void (*deleter)(DlManagedVersioned*);
  uint64_t flags;
  DlTensor t;
};

// The C functions of a class of tensors, in the capsule `__dlpack_c_exchange_api__` of the class.
struct DlExchange {
  static constexpr const char* kName = "dlpack_exchange_api";
  static constexpr uint32_t kMajor = 1;
  DlVersion version;
  DlExchange* previous;  // the functions for an older version of DLPack
  int (*allocate)(DlTensor* prototype, DlManagedVersioned** to, void* context,
                  void (*set_error)(void* context, const char* kind, const char* message));
  int (*to_managed)(void* object, DlManagedVersioned** to);
  int (*to_object)(DlManagedVersioned* tensor, void** to);
  int (*borrow)(void* object, DlTensor* to);  // may be null
  int (*stream)(int32_t device_type, int32_t device_index, void** to);
};

}  // namespace yard::python
