// Writes a configuration as YAML, and the schema as the Markdown of docs/configuration.md.
#include <algorithm>

#include <spdlog/fmt/fmt.h>

#include "config/schedule_file.h"
#include "config/schema.h"

namespace plait {
namespace config {
namespace {

std::vector<std::string> components(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t start = 0; start <= path.size();) {
    const std::size_t end = std::min(path.find('.', start), path.size());
    parts.push_back(path.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

std::string section_of(const std::string& path) {
  const auto dot = path.rfind('.');
  return dot == std::string::npos ? std::string() : path.substr(0, dot);
}

// A cell of a Markdown table.
std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

std::string default_cell(const Field& field) {
  if (field.presence == Presence::required) return "*required*";
  return "`" + yaml_text(field.get(Config{})) + "`";
}

std::string rule_cell(const Field& field) {
  const std::string type = type_name(field);
  const bool says_type = field.rule.words.find(type) != std::string::npos || field.rule.words.starts_with("one of") ||
                         field.rule.words.starts_with("a list") || field.rule.words.starts_with("an integer") ||
                         type == "string";
  return says_type ? field.rule.words : type + ", " + field.rule.words;
}

std::string section_markdown(const Section& section) {
  std::string text = fmt::format("\n## {}\n\n{}\n\n| key | default | rule | meaning |\n| --- | --- | --- | --- |\n",
                                 section.path, section.meaning);
  for (const Field& field : fields()) {
    if (section_of(field.path) != section.path) continue;
    text += fmt::format("| `{}` | {} | {} | {} |\n", field.path, cell(default_cell(field)), cell(rule_cell(field)),
                        cell(field.meaning + (field.per_host ? " May differ between ranks." : "")));
  }
  return text;
}

std::string preset_markdown() {
  std::string text =
      "\n## Presets\n\nWhat a preset does not fix (`auto`) is derived: `kv_heads` = `heads`, `head_dim` = `hidden / heads`, "
      "`ffn` = `4 * hidden`, `vocab` from the tokenizer, `max_sequence` from `data.sequence_length`.\n\n"
      "| preset | shape of | layers | hidden | heads | kv_heads | head_dim | ffn | vocab | max_sequence | norm, epsilon | mlp "
      "| "
      "position | tied |\n"
      "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n";
  for (const Preset& preset : presets()) {
    const ModelConfig& m = preset.model;
    std::string position = to_string(m.position);
    if (m.position == Position::rope) position += ", base " + yaml_text(m.rope_base);
    const std::string norm =
        fmt::format("{}, {}{}", to_string(m.norm), yaml_text(m.norm_epsilon), m.qk_norm ? ", `qk_norm`" : "");
    text += fmt::format("| `{}` | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", preset.name,
                        preset.meaning, m.layers, m.hidden, m.heads, to_string(m.kv_heads), to_string(m.head_dim),
                        to_string(m.ffn), to_string(m.vocab), to_string(m.max_sequence), norm, to_string(m.mlp), position,
                        m.tie_embeddings ? "yes" : "no");
  }
  return text;
}

std::string cross_rule_markdown() {
  std::string text = "\n## Rules over several keys\n\n";
  for (const CrossRule& rule : cross_rules()) text += fmt::format("* `{}` {}\n", rule.keys.front(), rule.words);
  return text;
}

// Why numbers are bounded, by reason.
std::string reasons_markdown() {
  std::vector<std::pair<std::string, std::string>> keys_of;  // reason, keys
  for (const Field& field : fields()) {
    const std::string& reason = field.rule.reason;
    if (reason.empty()) continue;
    const auto found = std::ranges::find(keys_of, reason, &std::pair<std::string, std::string>::first);
    if (found == keys_of.end()) {
      keys_of.emplace_back(reason, "`" + field.path + "`");
    } else {
      found->second += ", `" + field.path + "`";
    }
  }
  std::string text =
      "\n## Why numbers are bounded\n\nEvery number has a least and a most, far beyond what has been trained, so that a slip "
      "of the keyboard is an error at once, and products of sizes are known to fit. A file has at most " +
      fmt::format("{} KiB and {} values.\n\n", limits::config_bytes >> 10, limits::config_values);
  for (const auto& [reason, keys] : keys_of) text += fmt::format("* {}: {}\n", keys, reason);
  return text;
}

}  // namespace
}  // namespace config

std::string to_yaml(const Config& config) {
  std::string text;
  std::vector<std::string> open;  // the sections the previous line was in
  for (const config::Field& field : config::fields()) {
    if (field.shorthand) continue;
    const std::vector<std::string> path = config::components(field.path);
    std::size_t common = 0;
    while (common < open.size() && common + 1 < path.size() && open[common] == path[common]) ++common;
    open.resize(common);
    for (; open.size() + 1 < path.size(); open.push_back(path[open.size()])) {
      text += std::string(2 * open.size(), ' ') + path[open.size()] + ":\n";
    }
    text += std::string(2 * open.size(), ' ') + path.back() + ": " + config::yaml_text(field.get(config)) + "\n";
  }
  return text;
}

std::vector<ConfigValue> shared_values(const Config& config) {
  std::vector<ConfigValue> values;
  for (const config::Field& field : config::fields()) {
    if (!field.per_host && !field.shorthand) values.push_back({field.path, config::yaml_text(field.get(config))});
  }
  return values;
}

std::string schedule_name(const ParallelConfig& parallel) {
  if (parallel.schedule_file) return parallel.schedule_file->path;
  return to_string(parallel.schedule);
}

std::string configuration_markdown() {
  std::string text =
      "# Configuration\n\n"
      "<!-- Generated from src/config/config.h; `PLAIT_UPDATE_DOCS=1 test_core` writes it again. -->\n\n"
      "One YAML file describes a run. `--set path=value` on the command line replaces one key (`--set train.steps=10`, "
      "`--set train.optimizer.lr=3e-4`, `--set 'data.train=[\"*.txt\"]'`); the value is YAML. A key that is not listed here "
      "is an "
      "error, and all errors of a file are reported together, each with its line.\n\n"
      "Keys are written nested (`train: {optimizer: {lr: 6e-4}}`). `auto` where the rule allows it lets plait choose. A "
      "list of "
      "one element may be written as the element. Paths are relative to the directory the program is started in. The "
      "resolved "
      "configuration, with every key, is written to `config.yaml` in the run directory.\n";
  for (const config::Section& section : config::sections()) text += config::section_markdown(section);
  return text + config::preset_markdown() + config::cross_rule_markdown() + config::reasons_markdown();
}

}  // namespace plait
