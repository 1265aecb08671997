// A meeting lets ranks talk to each other through a rendezvous: in JSON, one word per rank and topic.
//
// Meetings of one name use a topic only once in a job. A peer's word is not trusted: its size and depth are checked before it
// is read, and anything wrong with it is a CommError that names the rank, the key and the fault. Ranks wait for each other up
// to the meeting's time limit, and longer only for a rank that says it is busy. An aborted rendezvous ends every wait.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "comm/rendezvous.h"
#include "comm/word.h"

namespace plait::comm {

using Json = nlohmann::ordered_json;

class Meeting {
 public:
  // The longest word, unless the reader sets another limit.
  static constexpr std::size_t usual_bytes = std::size_t{16} << 20;

  // `members`: ranks, listed in the same order on all of them; `rank` is one of them. The store outlives the meeting.
  Meeting(Rendezvous& store, std::string name, int rank, std::vector<int> members, std::chrono::milliseconds timeout);
  Meeting(Rendezvous& store, std::string name, int rank, int size, std::chrono::milliseconds timeout);  // of 0 to size - 1
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  Meeting(Meeting&&) = default;

  int rank() const { return rank_; }
  int peer() const;  // the other one of two
  const std::vector<int>& members() const { return members_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  std::string key(const std::string& topic, int rank) const;

  // This rank's word. CommError if it has one on this topic already; try_say is false then.
  template <typename T>
  void say(const std::string& topic, const T& word) {
    store_->set(key(topic, rank_), text_of(Json(word)));
  }
  template <typename T>
  bool try_say(const std::string& topic, const T& word) {
    return store_->try_set(key(topic, rank_), text_of(Json(word)));
  }
  // The word of `rank`; blocks until there is one.
  template <typename T>
  T hear(const std::string& topic, int rank, std::size_t most_bytes = usual_bytes) {
    const auto word = await(topic, rank, Clock::now() + timeout_);
    if (!word) throw_absent(topic, {rank});
    return read<T>(topic, rank, *word, most_bytes);
  }
  // The word of `rank` if there is one yet; does not block and works after an abort.
  template <typename T>
  std::optional<T> heard(const std::string& topic, int rank) const {
    const auto text = store_->find(key(topic, rank));
    return text ? std::optional(read<T>(topic, rank, *text, usual_bytes)) : std::nullopt;
  }

  // Everybody's word, in the order of the members. Collective, like everything below: if ranks are missing, every other rank's
  // CommError names all of them. The number of requests to the store grows with the members, not their square: the first member
  // collects the words and passes them on together.
  template <typename T>
  std::vector<T> gather(const std::string& topic, const T& own, std::size_t most_bytes = usual_bytes) {
    say(topic, own);
    return hear_all(topic, own, most_bytes);
  }
  // gather() for a rank that has said its own word already.
  template <typename T>
  std::vector<T> hear_all(const std::string& topic, const T& own, std::size_t most_bytes = usual_bytes) {
    return from_words(topic, own, hear_together(topic, Json(own), most_bytes));
  }
  // Like gather(), but only `reader` gets the result. The others get an empty one and do not wait.
  template <typename T>
  std::vector<T> gather_on(int reader, const std::string& topic, const T& own, std::size_t most_bytes = usual_bytes) {
    if (rank_ == reader) return from_words(topic, own, hear_each(topic, most_bytes, timeout_));
    say(topic, own);
    return {};
  }
  // All ranks get the result of `make` on `teller`, the only rank that calls it.
  template <typename Make>
  auto tell(int teller, const std::string& topic, const Make& make) -> decltype(make()) {
    if (rank_ != teller) return hear<decltype(make())>(topic, teller);
    auto word = make();
    if (members_.size() > 1) say(topic, word);
    return word;
  }
  template <typename T>
  T least(const std::string& topic, T own) {
    const std::vector<T> all = gather(topic, own);
    return *std::min_element(all.begin(), all.end());
  }
  template <typename T>
  T greatest(const std::string& topic, T own) {
    const std::vector<T> all = gather(topic, own);
    return *std::max_element(all.begin(), all.end());
  }
  // CommError unless all words are equal; it names two ranks that differ, and their words.
  void agree(const std::string& topic, const Json& own);
  void meet(const std::string& topic);  // returns when everybody has arrived

  // The first word on this topic, the same for all ranks that ask: `own` unless another rank was earlier.
  template <typename T>
  T first(const std::string& topic, const T& own) {
    store_->try_set(common_key(topic), text_of(Json(own)));
    return first<T>(topic).value_or(own);
  }
  template <typename T>
  std::optional<T> first(const std::string& topic) const {
    const auto text = store_->find(common_key(topic));
    return text ? std::optional(read<T>(topic, nobody, *text, usual_bytes)) : std::nullopt;
  }

  // Passes a shared object from one rank to another; between threads of one process only (otherwise InternalError).
  void give_object(const std::string& topic, std::shared_ptr<void> object);
  std::shared_ptr<void> take_object(const std::string& topic, int rank);

  void check() const { store_->check(); }  // CommError once the rendezvous has been aborted
  // Throws the CommError for a word of `rank` that cannot be used.
  [[noreturn]] void refuse(const std::string& topic, int rank, const std::string& why) const;

  // While it exists, this rank says that it is busy and the others in this meeting wait for it, for example while a slow disk
  // writes a checkpoint. A process that dies or is stopped no longer counts as busy.
  class Busy {
   public:
    Busy(Rendezvous& store, std::string prefix, std::chrono::milliseconds period);

   private:
    std::jthread thread_;
  };
  [[nodiscard]] Busy busy();

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr int nobody = -1;

  std::string common_key(const std::string& topic) const { return name_ + "/" + topic; }
  static std::string text_of(const Json& word);
  Json parse(const std::string& topic, int rank, const std::string& text, std::size_t most_bytes) const;
  std::string together_key(const std::string& topic) const { return common_key(topic) + "/together"; }
  // The words of all members, in their order; the entry at this rank's place is unspecified.
  std::vector<Json> hear_each(const std::string& topic, std::size_t most_bytes, std::chrono::milliseconds timeout);
  std::vector<Json> hear_together(const std::string& topic, const Json& own, std::size_t most_bytes);
  std::vector<Json> hear_and_pass_on(const std::string& topic, const Json& own, std::size_t most_bytes);
  std::vector<Json> hear_passed_on(const std::string& topic, std::size_t most_bytes);
  std::optional<std::string> await(const std::string& topic, int rank, Clock::time_point deadline);
  std::vector<int> absent(const std::string& topic) const;  // other members without a word on the topic
  // Throws the CommError that names the absent ranks.
  [[noreturn]] void throw_absent(const std::string& topic, const std::vector<int>& ranks) const;
  bool has_been_busy(int rank);  // since the last call
  std::chrono::milliseconds time_to_say_busy() const;

  template <typename T>
  std::vector<T> from_words(const std::string& topic, const T& own, const std::vector<Json>& words) const {
    std::vector<T> all;
    for (std::size_t i = 0; i < members_.size(); ++i)
      all.push_back(members_[i] == rank_ ? own : from_word<T>(topic, members_[i], words[i]));
    return all;
  }

  template <typename T>
  T read(const std::string& topic, int rank, const std::string& text, std::size_t most_bytes) const {
    return from_word<T>(topic, rank, parse(topic, rank, text, most_bytes));
  }

  template <typename T>
  T from_word(const std::string& topic, int rank, const Json& word) const {
    try {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
        const bool fits = word.is_number_unsigned() ? std::in_range<T>(word.get<std::uint64_t>())
                                                    : word.is_number_integer() && std::in_range<T>(word.get<std::int64_t>());
        if (!fits) refuse(topic, rank, word.dump() + " does not fit the expected integer type");
      }
      return word.get<T>();
    } catch (const nlohmann::json::exception& error) {
      refuse(topic, rank, error.what());
    } catch (const InvalidWord& error) {
      refuse(topic, rank, error.what());
    }
  }

  Rendezvous* store_;
  std::string name_;
  int rank_;
  std::vector<int> members_;
  std::chrono::milliseconds timeout_;
  std::vector<std::uint64_t> beats_;  // by member: heartbeats seen while it was busy
};

}  // namespace plait::comm
