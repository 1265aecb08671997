#include "comm/meeting.h"

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <numeric>
#include <stop_token>

#include "core/error.h"
#include "core/json.h"
#include "core/stoppable_wait.h"

namespace plait::comm {
namespace {

constexpr std::size_t longest_shown = 200;                       // of a word that differs
constexpr std::size_t longest_together = std::size_t{64} << 20;  // more than a thousand ranks say about their links
constexpr int beats_per_timeout = 4;

std::vector<int> ranks_below(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::string beat_key(const std::string& prefix, std::uint64_t number) { return prefix + "/" + std::to_string(number); }

}  // namespace

Meeting::Meeting(Rendezvous& store, std::string name, int rank, std::vector<int> members, std::chrono::milliseconds timeout)
    : store_(&store),
      name_(std::move(name)),
      rank_(rank),
      members_(std::move(members)),
      timeout_(timeout),
      beats_(members_.size(), 0) {
  require(std::find(members_.begin(), members_.end(), rank) != members_.end(), "meeting '" + name_ + "' without this rank");
}

Meeting::Meeting(Rendezvous& store, std::string name, int rank, int size, std::chrono::milliseconds timeout)
    : Meeting(store, std::move(name), rank, ranks_below(size), timeout) {}

int Meeting::peer() const {
  require(members_.size() == 2, "meeting '" + name_ + "' is not one of two ranks");
  return members_[0] == rank_ ? members_[1] : members_[0];
}

std::string Meeting::key(const std::string& topic, int rank) const { return common_key(topic) + "/" + std::to_string(rank); }

// Texts of drivers and of the system may be in any encoding; bytes that are not UTF-8 are replaced.
std::string Meeting::text_of(const Json& word) {
  std::string text = word.dump(-1, ' ', false, Json::error_handler_t::replace);
  require(text.size() <= Rendezvous::longest_value, "a word is too long for the rendezvous");
  return text;
}

Json Meeting::parse(const std::string& topic, int rank, const std::string& text, std::size_t most_bytes) const {
  if (text.size() > most_bytes) {
    refuse(topic, rank,
           "it is " + std::to_string(text.size()) + " bytes long; at most " + std::to_string(most_bytes) + " are allowed");
  }
  return parse_json<Json>(text, [&](const std::string& problem) { refuse(topic, rank, "it " + problem); });
}

void Meeting::refuse(const std::string& topic, int rank, const std::string& why) const {
  const std::string who = rank == nobody ? "a rank" : "rank " + std::to_string(rank);
  throw CommError(who + " sent something unusable for '" + (rank == nobody ? common_key(topic) : key(topic, rank)) +
                  "': " + why + "; do all ranks run the same plait?");
}

std::optional<std::string> Meeting::await(const std::string& topic, int rank, Clock::time_point deadline) {
  if (auto word = store_->find(key(topic, rank))) return word;
  has_been_busy(rank);
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    try {
      if (auto word = store_->wait(key(topic, rank), std::max(left, std::chrono::milliseconds(0)))) return word;
    } catch (const CommError&) {
      // A word said before the rendezvous was aborted counts, so all ranks see the reason one of them may have ended for.
      if (auto word = store_->find(key(topic, rank))) return word;
      throw;
    }
    if (!has_been_busy(rank)) return std::nullopt;
    deadline = Clock::now() + timeout_;
  }
}

std::vector<Json> Meeting::hear_each(const std::string& topic, std::size_t most_bytes, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::vector<Json> words;
  for (const int member : members_) {
    words.emplace_back();
    if (member == rank_) continue;
    const auto word = await(topic, member, std::max(deadline, Clock::now() + time_to_say_busy()));
    if (!word) throw_absent(topic, absent(topic));
    words.back() = parse(topic, member, *word, most_bytes);
  }
  return words;
}

std::vector<Json> Meeting::hear_together(const std::string& topic, const Json& own, std::size_t most_bytes) {
  if (members_.size() <= 2) return hear_each(topic, most_bytes, timeout_);
  return rank_ == members_.front() ? hear_and_pass_on(topic, own, most_bytes) : hear_passed_on(topic, most_bytes);
}

// Passes on an empty text, "", if each rank has to see for itself: a rank did not come, or its word cannot be used.
std::vector<Json> Meeting::hear_and_pass_on(const std::string& topic, const Json& own, std::size_t most_bytes) {
  const auto pass_on = [&](const std::string& text) { store_->try_set(together_key(topic), text); };
  std::vector<Json> words;
  try {
    words = hear_each(topic, most_bytes, timeout_);
  } catch (const CommError&) {
    try {
      pass_on("");
    } catch (const CommError&) {
      // The store is gone; the others will find that out.
    }
    throw;
  }
  words.front() = own;
  const std::string text = Json(words).dump(-1, ' ', false, Json::error_handler_t::replace);
  pass_on(text.size() <= longest_together ? text : "");
  return words;
}

std::vector<Json> Meeting::hear_passed_on(const std::string& topic, std::size_t most_bytes) {
  const auto deadline = Clock::now() + timeout_;
  std::optional<std::string> text;
  try {
    text = store_->wait(together_key(topic), timeout_);
  } catch (const CommError&) {
    text = store_->find(together_key(topic));  // said before the rendezvous was aborted, see await()
  }
  if (text && !text->empty()) {
    const Json words = parse(topic, members_.front(), *text, longest_together);
    if (!words.is_array() || words.size() != members_.size())
      refuse(topic, members_.front(), "it does not pass on a word of each rank");
    return words.get<std::vector<Json>>();
  }
  return hear_each(topic, most_bytes, std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()));
}

// A busy rank says so within this time, no matter which rank was waited for before.
std::chrono::milliseconds Meeting::time_to_say_busy() const { return 2 * timeout_ / beats_per_timeout; }

std::vector<int> Meeting::absent(const std::string& topic) const {
  std::vector<int> ranks;
  for (const int member : members_) {
    if (member != rank_ && !store_->find(key(topic, member))) ranks.push_back(member);
  }
  return ranks;
}

void Meeting::throw_absent(const std::string& topic, const std::vector<int>& ranks) const {
  std::vector<std::string> keys;
  std::string who;
  for (const int rank : ranks) {
    keys.push_back(key(topic, rank));
    who += (who.empty() ? (ranks.size() == 1 ? "rank " : "ranks ") : ", ") + std::to_string(rank);
  }
  store_->throw_missing(keys, timeout_, who.empty() ? "a rank that came too late" : who);
}

bool Meeting::has_been_busy(int rank) {
  const auto member = std::find(members_.begin(), members_.end(), rank);
  require(member != members_.end(), "meeting '" + name_ + "' without the awaited rank");
  std::uint64_t& seen = beats_[static_cast<std::size_t>(member - members_.begin())];
  const std::uint64_t before = seen;
  while (store_->find(beat_key(key("busy", rank), seen))) ++seen;
  return seen > before;
}

void Meeting::agree(const std::string& topic, const Json& own) {
  const std::vector<Json> all = gather(topic, own);
  const auto shown = [](const Json& word) { return text_of(word).substr(0, longest_shown); };
  for (std::size_t i = 1; i < all.size(); ++i) {
    if (all[i] == all[0]) continue;
    throw CommError("the ranks do not agree on '" + common_key(topic) + "': rank " + std::to_string(members_[0]) + " says " +
                    shown(all[0]) + ", rank " + std::to_string(members_[i]) + " says " + shown(all[i]));
  }
}

void Meeting::meet(const std::string& topic) { gather(topic, Json()); }

void Meeting::give_object(const std::string& topic, std::shared_ptr<void> object) {
  store_->set_object(key(topic, rank_), std::move(object));
}

std::shared_ptr<void> Meeting::take_object(const std::string& topic, int rank) {
  return store_->take_object(key(topic, rank), timeout_);
}

Meeting::Busy Meeting::busy() {
  return Busy(*store_, key("busy", rank_), std::max(timeout_ / beats_per_timeout, std::chrono::milliseconds(1)));
}

Meeting::Busy::Busy(Rendezvous& store, std::string prefix, std::chrono::milliseconds period)
    : thread_([&store, prefix = std::move(prefix), period](std::stop_token stop) {
        try {
          for (std::uint64_t beat = 0;;) {
            wait_for_stop(stop, period);
            if (stop.stop_requested()) return;
            while (!store.try_set(beat_key(prefix, beat), "")) ++beat;  // those of earlier tasks are there
          }
        } catch (const std::exception&) {
          return;  // the store is gone; the waiting ranks find that out
        }
      }) {}

}  // namespace plait::comm
