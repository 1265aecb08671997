#include "checkpoint/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/json.h"
#include "core/message.h"

namespace plait::checkpoint {

std::int64_t TensorSpec::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t dim : shape) {
    require(dim >= 0 && !__builtin_mul_overflow(count, dim, &count), "tensor " + name + ": impossible shape");
  }
  return count;
}

std::int64_t TensorSpec::columns() const {
  const std::int64_t count = elements();
  return count == 0 ? 0 : count / rows();
}

namespace {

constexpr std::uint64_t length_bytes = 8;
constexpr std::uint64_t max_header_bytes = 100'000'000;  // the reference implementation's limit
constexpr std::size_t max_dims = 16;
constexpr std::uint64_t most_elements = std::numeric_limits<std::int64_t>::max();

constexpr std::array<std::pair<std::string_view, DType>, 6> dtype_names{{{"F32", DType::f32},
                                                                         {"F64", DType::f64},
                                                                         {"BF16", DType::bf16},
                                                                         {"F16", DType::f16},
                                                                         {"I32", DType::i32},
                                                                         {"U8", DType::u8}}};

// The format's other types, in bits; elements of the narrowest share a byte.
constexpr std::array<std::pair<std::string_view, std::uint64_t>, 14> other_types{{{"BOOL", 8},
                                                                                  {"I8", 8},
                                                                                  {"I16", 16},
                                                                                  {"U16", 16},
                                                                                  {"U32", 32},
                                                                                  {"I64", 64},
                                                                                  {"U64", 64},
                                                                                  {"C64", 64},
                                                                                  {"F8_E4M3", 8},
                                                                                  {"F8_E5M2", 8},
                                                                                  {"F8_E8M0", 8},
                                                                                  {"F6_E2M3", 6},
                                                                                  {"F6_E3M2", 6},
                                                                                  {"F4", 4}}};

std::string_view name_of(DType dtype) {
  for (const auto& [name, type] : dtype_names) {
    if (type == dtype) return name;
  }
  throw InternalError("this element type has no safetensors name");
}

template <typename Types>
auto find_named(const Types& types, std::string_view name) {
  const auto found = std::ranges::find(types, name, [](const auto& type) { return type.first; });
  return found == types.end() ? std::nullopt : std::optional(found->second);
}

// Names are untrusted.
std::string shown(const std::string& tensor) { return "tensor '" + printable(tensor, 256) + "'"; }

std::string little_endian(std::uint64_t value) {
  std::string bytes;
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>((value >> shift) & 0xff);
  return bytes;
}

class HeaderParser {
 public:
  explicit HeaderParser(const File& file) : file_(file) {}

  SafetensorsLayout parse() {
    layout_.file_bytes = file_.size();
    read_header();
    const auto repeated = [this](const std::string& name, int depth) {
      fail(depth == 1 ? shown(name) + " is in the header twice" : "an entry has '" + printable(name, 256) + "' twice");
    };
    const nlohmann::json header = parse_json(
        std::string_view(layout_.header).substr(length_bytes),
        [this](const std::string& problem) { fail("the header " + problem); }, unique_keys(repeated));
    if (!header.is_object()) fail("the header is not a JSON object");
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") add_tensor(name, entry);
    }
    check_order();
    return std::move(layout_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw ConfigError(file_.path().string() + ": not a valid safetensors file: " + printable(what));
  }

  void read_header() {
    if (layout_.file_bytes < length_bytes)
      fail("it has " + std::to_string(layout_.file_bytes) + " bytes, too few for a header");
    std::array<unsigned char, length_bytes> raw{};
    file_.read_at(0, raw.data(), raw.size());
    std::uint64_t length = 0;
    for (std::size_t i = 0; i < raw.size(); ++i) length |= std::uint64_t{raw[i]} << (8 * i);
    if (length > layout_.file_bytes - length_bytes) {
      fail("its header claims " + std::to_string(length) + " bytes, the file has " + std::to_string(layout_.file_bytes));
    }
    if (length > max_header_bytes) fail("its header claims " + std::to_string(length) + " bytes, more than the format allows");
    layout_.header.resize(length_bytes + length);
    file_.read_at(0, layout_.header.data(), layout_.header.size());
    if (length == 0 || layout_.header[length_bytes] != '{') fail("the header does not start with '{'");
  }

  void add_tensor(const std::string& name, const nlohmann::json& entry) {
    const auto broken = [&](const std::string& what) { fail(shown(name) + ": " + what); };
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") || !entry.contains("shape") ||
        !entry.contains("data_offsets")) {
      broken("an entry has exactly dtype, shape and data_offsets");
    }
    TensorSpec spec;
    spec.name = name;
    const auto& dtype = entry.at("dtype");
    const std::string type = dtype.is_string() ? dtype.get<std::string>() : "";
    const auto known = find_named(dtype_names, type);
    const auto other_bits = find_named(other_types, type);
    if (!known && !other_bits) broken("unknown dtype " + printable(dtype.dump(), 64));
    if (known) spec.dtype = *known;

    const auto& shape = entry.at("shape");
    if (!shape.is_array() || shape.size() > max_dims) {
      broken("shape is not a list of at most " + std::to_string(max_dims) + " dims");
    }
    std::uint64_t elements = 1, bits = 0;
    for (const auto& dim : shape) {
      if (!dim.is_number_unsigned()) broken("shape has a dim that is not a non-negative integer");
      const auto size = dim.get<std::uint64_t>();
      if (__builtin_mul_overflow(elements, size, &elements) || std::max(elements, size) > most_elements)
        broken("shape overflows");
      spec.shape.push_back(static_cast<std::int64_t>(size));
    }
    const std::uint64_t bits_each = known ? 8 * size_of(*known) : *other_bits;
    if (__builtin_mul_overflow(elements, bits_each, &bits)) broken("shape overflows");
    if (bits % 8 != 0) broken("shape and dtype " + type + " do not end with a whole byte");
    const std::uint64_t bytes = bits / 8;
    const auto& offsets = entry.at("data_offsets");
    if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() || !offsets[1].is_number_unsigned()) {
      broken("data_offsets is not a pair of non-negative integers");
    }
    const auto begin = offsets[0].get<std::uint64_t>();
    const auto end = offsets[1].get<std::uint64_t>();
    if (begin > end || end > layout_.file_bytes - layout_.header.size()) {
      broken("data_offsets " + offsets.dump() + " lie outside the file's " +
             std::to_string(layout_.file_bytes - layout_.header.size()) + " bytes of data");
    }
    if (end - begin != bytes) {
      broken("data_offsets hold " + std::to_string(end - begin) + " bytes, shape and dtype make " + std::to_string(bytes));
    }
    ranges_.push_back({layout_.header.size() + begin, layout_.header.size() + end, name});
    if (known) {
      layout_.tensors.push_back({std::move(spec), layout_.header.size() + begin});
    } else {
      layout_.others.push_back({name, type});
    }
  }

  // The tensors are contiguous from the header to the end: none overlaps another, and every byte belongs to one.
  void check_order() {
    std::ranges::sort(layout_.tensors, {}, [](const PlacedTensor& t) { return std::pair(t.offset, t.spec.bytes()); });
    std::ranges::sort(ranges_, {}, [](const Range& range) { return std::pair(range.begin, range.end); });
    std::uint64_t expected = layout_.header.size();
    for (const Range& range : ranges_) {
      if (range.begin < expected) fail(shown(range.tensor) + " overlaps the one before it");
      if (range.begin > expected) fail("there are unused bytes in front of " + shown(range.tensor));
      expected = range.end;
    }
    if (expected != layout_.file_bytes) {
      fail(std::to_string(layout_.file_bytes - expected) + " bytes follow the last tensor");
    }
  }

  struct Range {
    std::uint64_t begin, end;
    std::string tensor;
  };

  const File& file_;
  SafetensorsLayout layout_;
  std::vector<Range> ranges_;  // of all tensors
};

}  // namespace

SafetensorsLayout layout_safetensors(const std::vector<TensorSpec>& tensors) {
  std::vector<TensorSpec> ordered = tensors;
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const TensorSpec& a, const TensorSpec& b) { return size_of(a.dtype) > size_of(b.dtype); });
  nlohmann::ordered_json header;
  header["__metadata__"] = {{"format", "pt"}};
  std::uint64_t data_bytes = 0;
  std::set<std::string_view> names{"__metadata__"};
  for (const TensorSpec& spec : ordered) {
    require(names.insert(spec.name).second, "tensor name '" + spec.name + "' is taken");
    const auto bytes = static_cast<std::uint64_t>(spec.bytes());
    header[spec.name] = {
        {"dtype", name_of(spec.dtype)}, {"shape", spec.shape}, {"data_offsets", {data_bytes, data_bytes + bytes}}};
    data_bytes += bytes;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');

  SafetensorsLayout layout;
  layout.header = little_endian(text.size()) + text;
  std::uint64_t offset = layout.header.size();
  for (TensorSpec& spec : ordered) {
    const auto bytes = static_cast<std::uint64_t>(spec.bytes());
    layout.tensors.push_back({std::move(spec), offset});
    offset += bytes;
  }
  layout.file_bytes = offset;
  return layout;
}

SafetensorsLayout read_safetensors_layout(const File& file) { return HeaderParser(file).parse(); }

}  // namespace plait::checkpoint
