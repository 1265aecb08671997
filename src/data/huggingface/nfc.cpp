#include "data/huggingface/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "core/utf8.h"

namespace plait::data {
namespace {

using CodePoint = utf8proc_int32_t;

// All characters below U+0300 are in normal form and are starters. Those from there on have a first byte of 0xcc or more.
bool may_change(char byte) { return static_cast<unsigned char>(byte) >= 0xcc; }
bool is_ascii(char byte) { return static_cast<unsigned char>(byte) < 0x80; }

// Characters with a combining class, or with a composition or decomposition, that Unicode assigned after version 9 (up to 18).
// In Unicode 9 they are unassigned: they stay as they are, and nothing is moved past them or combined with them.
struct CodePoints {
  CodePoint first, last;
};
constexpr std::array<CodePoints, 71> newer_characters = {
    {{0x5c8, 0x5c9},     {0x7fd, 0x7fd},     {0x897, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xc3c, 0xc3c},
     {0xd3b, 0xd3c},     {0xeba, 0xeba},     {0x1715, 0x1715},   {0x1abf, 0x1af0},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
     {0x105c9, 0x105c9}, {0x105d2, 0x105d2}, {0x105da, 0x105da}, {0x105e4, 0x105e4}, {0x10d24, 0x10d27}, {0x10d69, 0x10d6d},
     {0x10eab, 0x10eac}, {0x10ecb, 0x10ecf}, {0x10ef0, 0x10efb}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f82, 0x10f85},
     {0x11070, 0x11070}, {0x1133b, 0x1133b}, {0x11382, 0x11385}, {0x1138b, 0x1138b}, {0x1138e, 0x1138e}, {0x11390, 0x11391},
     {0x113b8, 0x113b8}, {0x113bb, 0x113bb}, {0x113c2, 0x113c2}, {0x113c5, 0x113c5}, {0x113c7, 0x113c9}, {0x113ce, 0x113d0},
     {0x1145e, 0x1145e}, {0x11839, 0x1183a}, {0x11930, 0x11930}, {0x11935, 0x11935}, {0x11938, 0x11938}, {0x1193d, 0x1193e},
     {0x11943, 0x11943}, {0x119e0, 0x119e0}, {0x11a34, 0x11a34}, {0x11a47, 0x11a47}, {0x11a99, 0x11a99}, {0x11d42, 0x11d42},
     {0x11d44, 0x11d45}, {0x11d97, 0x11d97}, {0x11f41, 0x11f42}, {0x1611e, 0x16129}, {0x1612f, 0x1612f}, {0x16d63, 0x16d63},
     {0x16d67, 0x16d6a}, {0x16ff0, 0x16ff1}, {0x1d127, 0x1d128}, {0x1d250, 0x1d252}, {0x1d25b, 0x1d25c}, {0x1d25f, 0x1d25f},
     {0x1d280, 0x1d281}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef},
     {0x1e5ee, 0x1e5ef}, {0x1e6e3, 0x1e6e3}, {0x1e6e6, 0x1e6e6}, {0x1e6ee, 0x1e6ef}, {0x1e6f5, 0x1e6f5}}};

bool is_newer(CodePoint character) {
  const auto found = std::ranges::lower_bound(newer_characters, character, {}, &CodePoints::last);
  return found != newer_characters.end() && found->first <= character;
}

utf8proc_propval_t combining_class(CodePoint character) { return utf8proc_get_property(character)->combining_class; }

void append_utf8(CodePoint character, std::string& to) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto length = utf8proc_encode_char(character, bytes.data());
  to.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(length));
}

// Appends the normal form of decomposed characters, and clears them.
void append_composed(std::vector<CodePoint>& characters, std::string& to) {
  // utf8proc_decompose() would sort a run of marks in quadratic time.
  for (auto run = characters.begin(); run != characters.end();) {
    const auto is_starter = [](CodePoint c) { return combining_class(c) == 0; };
    run = std::find_if_not(run, characters.end(), is_starter);
    const auto end = std::find_if(run, characters.end(), is_starter);
    std::stable_sort(run, end, [](CodePoint a, CodePoint b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
  const auto composed = utf8proc_normalize_utf32(characters.data(), std::ssize(characters),
                                                 static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  require(composed >= 0, "nfc: utf8proc cannot compose");
  for (utf8proc_ssize_t i = 0; i < composed; ++i) append_utf8(characters[static_cast<std::size_t>(i)], to);
  characters.clear();
}

// Appends the normal form of `text`; nothing before or after it combines with it.
void append_normal(std::string_view text, std::string& to) {
  std::vector<CodePoint> characters;
  std::array<CodePoint, 32> parts{};  // the longest canonical decomposition has 4
  while (!text.empty()) {
    CodePoint character = 0;
    const auto length = utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), std::ssize(text), &character);
    require(length > 0, "nfc: the text is not UTF-8");
    text.remove_prefix(static_cast<std::size_t>(length));
    if (is_newer(character)) {
      append_composed(characters, to);
      append_utf8(character, to);
      continue;
    }
    int boundary = 0;
    const auto count = utf8proc_decompose_char(character, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    require(count > 0 && count <= std::ssize(parts), "nfc: a decomposition is too long");
    characters.insert(characters.end(), parts.begin(), parts.begin() + count);
  }
  append_composed(characters, to);
}

}  // namespace

std::string_view nfc(std::string_view text, std::string& storage) {
  if (std::none_of(text.begin(), text.end(), may_change)) return text;
  storage.clear();
  std::size_t done = 0;
  while (done < text.size()) {
    auto changing = static_cast<std::size_t>(
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(done), text.end(), may_change) - text.begin());
    if (changing == text.size()) break;
    // From the character before, which a mark may join, to the next ASCII character, which joins nothing before it.
    if (changing > done) {
      --changing;
      while (changing > done && is_utf8_continuation(text[changing])) --changing;
    }
    const auto end = static_cast<std::size_t>(
        std::find_if(text.begin() + static_cast<std::ptrdiff_t>(changing) + 1, text.end(), is_ascii) - text.begin());
    storage.append(text.substr(done, changing - done));
    append_normal(text.substr(changing, end - changing), storage);
    done = end;
  }
  storage.append(text.substr(done));
  return storage;
}

}  // namespace plait::data
