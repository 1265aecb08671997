#include "interop/foreign_files.h"

#include <array>
#include <string>
#include <vector>

#include "checkpoint/run_directory.h"
#include "core/file.h"
#include "interop/foreign_weights.h"

namespace plait::interop {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr std::array side_files{"config.json",
                                "generation_config.json",
                                "tokenizer.json",
                                "tokenizer_config.json",
                                "special_tokens_map.json",
                                "added_tokens.json",
                                "vocab.json",
                                "merges.txt",
                                "tokenizer.model",
                                "chat_template.jinja"};

// Another program may have written it, so nothing is taken for granted.
std::vector<fs::path> origins(const OrderedJson& init_from) {
  std::vector<fs::path> paths;
  const auto add = [&](const OrderedJson& origin) {
    const auto path = origin.is_object() ? origin.find("checkpoint") : origin.end();
    if (origin.is_object() && path != origin.end() && path->is_string()) paths.emplace_back(path->get<std::string>());
  };
  add(init_from);
  if (!init_from.is_object() || !init_from.contains("lineage")) return paths;
  for (const OrderedJson& older : init_from["lineage"]) add(older);
  return paths;
}

}  // namespace

void copy_side_files(const fs::path& from, const fs::path& to) {
  for (const char* name : side_files) {
    if (fs::is_regular_file(from / name) && !fs::exists(to / name))
      write_text_file(to / name, read_text(from / name, most_side_bytes));
  }
}

std::optional<fs::path> find_side_files(const fs::path& run_dir, const OrderedJson& init_from) {
  const auto kept_by = [](const fs::path& run) {
    std::error_code ignored;
    return fs::exists(run / kept_folder / "config.json", ignored);
  };
  if (kept_by(run_dir)) return run_dir / kept_folder;
  for (const fs::path& origin : origins(init_from)) {
    if (interop::is_model_directory(origin)) return origin;
    if (const fs::path run = checkpoint::run_directory_of(origin); kept_by(run)) return run / kept_folder;
  }
  return std::nullopt;
}

void keep_side_files(const fs::path& run_dir, const OrderedJson& init_from) {
  const std::optional<fs::path> from = find_side_files(run_dir, init_from);
  if (!from) return;
  create_private_directory(run_dir / kept_folder);
  copy_side_files(*from, run_dir / kept_folder);
}

}  // namespace plait::interop
