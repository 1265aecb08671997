#include "core/dtype.h"

#include <string>

#include "core/error.h"

namespace plait {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::f32: return 4;
    case DType::f64: return 8;
    case DType::bf16: return 2;
    case DType::i32: return 4;
    case DType::u8: return 1;
  }
  throw InternalError("size_of: unknown dtype");
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  throw InternalError("to_string: unknown dtype");
}

DType dtype_from(std::string_view name) {
  if (name == "f32" || name == "fp32") return DType::f32;
  if (name == "f64" || name == "fp64") return DType::f64;
  if (name == "bf16") return DType::bf16;
  throw ConfigError("unknown element type '" + std::string(name) + "': use fp32, fp64 or bf16");
}

}  // namespace plait
