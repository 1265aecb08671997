#include "launch/agreement.h"

#include <spdlog/fmt/chrono.h>
#include <spdlog/fmt/fmt.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "comm/communicator.h"
#include "config/schedule_file.h"
#include "config/tcp_place.h"
#include "core/error.h"
#include "core/units.h"
#include "core/version.h"
#include "data/documents.h"
#include "data/files.h"
#include "launch/launch_environment.h"
#include "ops/libraries.h"
#include "site/devices.h"

namespace plait::launch {
namespace {

constexpr std::size_t most_groups = 4;  // of ranks that differ from rank 0 in the same way
constexpr const char* nothing = "nothing";

std::string checksum(const std::string& text) { return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size())); }

std::string state_of_file(const std::string& path) {
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0) return std::string("cannot be examined: ") + std::strerror(errno);
  return fmt::format("{} bytes, changed {:%Y-%m-%dT%H:%M:%SZ}", status.st_size, fmt::gmtime(status.st_mtime));
}

std::string why(const Error& error) {
  const auto* input = dynamic_cast<const ConfigError*>(&error);
  return input && !input->problems().empty() ? input->problems().front().rule : error.what();
}

void add_files(const std::string& key, const std::vector<std::string>& globs, std::vector<Fact>& facts) {
  try {
    for (const data::MatchedFile& file : data::match_files(globs, key)) {
      facts.push_back({key + " " + file.path.string(), state_of_file(file.path)});
      const std::filesystem::path index = data::document_index_path(file.path);
      if (data::is_document_index(index)) facts.push_back({key + " " + index.string(), state_of_file(index)});
    }
  } catch (const ConfigError& error) {
    facts.push_back({key + ", its files", why(error)});
  }
}

using Word = std::vector<std::pair<std::string, std::string>>;

Word word_of(const std::vector<Fact>& facts) {
  Word word;
  for (const Fact& fact : facts) word.emplace_back(fact.name, fact.value);
  return word;
}

// The text that others will read: bytes of a file's name that are not UTF-8 are replaced.
std::string text_of(const Word& word) { return comm::Json(word).dump(-1, ' ', false, comm::Json::error_handler_t::replace); }

// Ranks with equal facts.
struct Group {
  std::string checksum;
  std::vector<int> ranks;
};

std::vector<Group> groups_of(const std::vector<std::string>& checksums) {
  std::vector<Group> groups;
  for (std::size_t rank = 0; rank < checksums.size(); ++rank) {
    auto group = std::ranges::find(groups, checksums[rank], &Group::checksum);
    if (group == groups.end()) group = groups.insert(groups.end(), Group{checksums[rank], {}});
    group->ranks.push_back(static_cast<int>(rank));
  }
  return groups;
}

std::string named_ranks(const std::vector<int>& ranks) {
  constexpr std::size_t most_named = 8;
  const std::size_t named = std::min(ranks.size(), most_named);
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  text += fmt::format("{}", fmt::join(ranks.begin(), ranks.begin() + static_cast<std::ptrdiff_t>(named), ", "));
  return named < ranks.size() ? text + fmt::format(" and {} more", ranks.size() - named) : text;
}

// In the order of `first`; facts that only `other` has come last.
std::vector<ConfigProblem> differences(const Group& first_group, const Word& first, const Group& other_group,
                                       const Word& other) {
  const std::map<std::string, std::string> in_first(first.begin(), first.end()), in_other(other.begin(), other.end());
  const auto value = [](const std::map<std::string, std::string>& facts, const std::string& name) {
    const auto found = facts.find(name);
    return found == facts.end() ? std::string(nothing) : comm::as_field(found->second);
  };
  std::vector<ConfigProblem> problems;
  std::set<std::string> seen;
  for (const Word* word : {&first, &other}) {
    for (const auto& [name, unused] : *word) {
      const std::string a = value(in_first, name), b = value(in_other, name);
      if (a == b || !seen.insert(name).second) continue;
      problems.push_back({comm::as_field(name), b,
                          fmt::format("on {}, but {} on {}; it has to be the same on all ranks", named_ranks(other_group.ranks),
                                      a, named_ranks(first_group.ranks)),
                          "", 0});
    }
  }
  return problems;
}

}  // namespace

std::vector<Fact> facts_of(const Config& config, const parallel::Decision& decision) {
  std::vector<Fact> facts;
  for (const ConfigValue& value : shared_values(config)) facts.push_back({value.path, value.value});
  if (const auto& file = config.parallel.schedule_file)
    facts.push_back({"parallel.schedule, its file", "XXH3 " + checksum(file->text)});
  if (const auto& passes = decision.passes)
    facts.push_back({"parallel.schedule, its passes", "XXH3 " + checksum(passes->text)});
  if (config.data.tokenizer != "random") {
    add_files(config.data.training_key(), config.data.training_files(), facts);
    add_files("data.validation", config.data.validation, facts);
    const std::string& model = config.data.sentencepiece.model;
    if (!model.empty()) facts.push_back({"data.sentencepiece.model " + model, state_of_file(model)});
    const std::string& file = config.data.huggingface.file;
    if (!file.empty()) facts.push_back({"data.huggingface.file " + file, state_of_file(file)});
  }
  facts.push_back({"version of plait", to_string(build_version())});
  try {
    const DeviceKind kind = site::choose_devices(config).kind;
    facts.push_back({"kind of device", kind == DeviceKind::cuda ? "GPU" : "CPU"});
    facts.push_back({"communication", comm::backend_name(kind)});
    for (const ops::LibraryVersion& library : ops::library_versions(kind))
      facts.push_back({"version of " + library.name, library.version()});
  } catch (const Error& error) {
    facts.push_back({"kind of device", why(error)});
  }
  return facts;
}

void agree(const RankContext& rank, const std::vector<Fact>& own, std::chrono::milliseconds timeout, const std::string& place) {
  using std::chrono::milliseconds;
  const auto start = std::chrono::steady_clock::now();
  const Word word = word_of(own);
  const std::string own_checksum = checksum(text_of(word));
  if (!rank.meeting("agreement", timeout).try_say("checksum", own_checksum)) {
    const std::string twice = fmt::format("rank {} of the job has been there already: ", rank.rank);
    throw ConfigError({{"launch.rendezvous", place,
                        twice + (tcp_place(place) ? "two processes claim that rank"
                                                  : "it is left over from an earlier job, or two processes claim that rank. "
                                                    "Remove it, or name a fresh directory for each job"),
                        "", 0}});
  }
  // Sending the word may have waited for rank 0, which serves the rendezvous.
  const auto spent = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  comm::Meeting meeting = rank.meeting("agreement", std::max(timeout - spent, milliseconds(1)));
  std::vector<std::string> checksums;
  try {
    checksums = meeting.hear_all("checksum", own_checksum);
  } catch (const CommError& error) {
    const std::string absent = fmt::format("not all {} ranks of the job have come", rank.size);
    std::string why = error.what();
    if (why.find(absent) == std::string::npos) why = absent + ": " + why;  // or another rank that gave up has said so
    rank.rendezvous->abort(why);
    throw CommError(why);
  }
  std::vector<Group> groups = groups_of(checksums);
  if (groups.size() == 1) return;

  // One rank of each group speaks for it, and all ranks read the same words.
  std::vector<ConfigProblem> problems;
  const std::size_t shown = std::min(groups.size(), most_groups + 1);
  std::vector<Word> words(shown);
  for (std::size_t g = 0; g < shown; ++g) {
    if (groups[g].ranks.front() == rank.rank) meeting.say("facts", word);
  }
  for (std::size_t g = 0; g < shown; ++g)
    words[g] = meeting.hear<Word>("facts", groups[g].ranks.front(), comm::Rendezvous::longest_value);
  for (std::size_t g = 1; g < shown; ++g) {
    for (ConfigProblem& problem : differences(groups[0], words[0], groups[g], words[g])) problems.push_back(std::move(problem));
  }
  // A job with another data.train differs in every file.
  throw ConfigError(first_problems(std::move(problems), "differences between ranks"));
}

std::shared_ptr<comm::Rendezvous> join_job(const Config& config, const parallel::Decision& decision) {
  std::optional<RankContext> rank = place_from_environment(config);
  if (!rank) return nullptr;
  rank->rendezvous = rendezvous_of(*rank, config);
  agree(*rank, facts_of(config, decision), milliseconds_of(config.comm.timeout_s), config.launch.rendezvous);
  return rank->rendezvous;
}

void end_job(const std::shared_ptr<comm::Rendezvous>& joined, const Config& config, const std::exception& error) noexcept {
  if (!joined) return;
  std::string who;
  try {
    if (const std::optional<RankContext> place = place_from_environment(config)) who = fmt::format("rank {}: ", place->rank);
  } catch (const std::exception&) {
    who = "";  // the fault lies in the launcher's variables
  }
  joined->abort(who + error_text(error));
}

}  // namespace plait::launch
