#include "comm/tcp/conversation.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace plait::comm {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

void append_number(std::string& text, std::uint64_t number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof number);
}

std::uint64_t number_at(std::string_view text, std::size_t offset) {
  std::uint64_t number = 0;
  if (offset + sizeof number > text.size()) throw CommError("a word about a key ends too early");
  std::memcpy(&number, text.data() + offset, sizeof number);
  return number;
}

Secret of_direction(const Secret& session, bool from_caller) {
  return session.derive(from_caller ? "from the caller" : "from the listener");
}

}  // namespace

std::string text_of(const Question& question) {
  std::string text(1, static_cast<char>(question.kind));
  append_number(text, question.milliseconds);
  append_number(text, question.key.size());
  text += question.key;
  text += question.value;
  return text;
}

Question question_from(std::string text) {
  Question question;
  constexpr std::size_t key_at = 1 + 2 * sizeof(std::uint64_t);
  question.milliseconds = number_at(text, 1);
  const std::uint64_t key_bytes = number_at(text, 1 + sizeof(std::uint64_t));
  question.kind = static_cast<Question::Kind>(text[0]);
  if (std::string_view("swfa").find(text[0]) == std::string_view::npos || key_bytes > text.size() - key_at) {
    throw CommError("a question about a key is none; do all ranks run the same plait?");
  }
  question.key = text.substr(key_at, key_bytes);
  question.value = text.substr(key_at + key_bytes);
  return question;
}

std::string text_of(const Answer& answer) { return static_cast<char>(answer.kind) + answer.text; }

Answer answer_from(std::string text) {
  if (text.empty() || std::string_view("yne").find(text[0]) == std::string_view::npos) {
    throw CommError("an answer about a key is none; do all ranks run the same plait?");
  }
  const auto kind = static_cast<Answer::Kind>(text[0]);
  text.erase(0, 1);
  return {kind, std::move(text)};
}

Conversation::Conversation(Proven connection, Proof::Side side)
    : socket_(std::move(connection.socket)),
      outgoing_seal_(of_direction(connection.session, side == Proof::Side::caller)),
      incoming_seal_(of_direction(connection.session, side != Proof::Side::caller)) {}

void Conversation::say(std::string_view text) {
  const std::string sealed = outgoing_seal_.close(text);
  append_number(outgoing_, sealed.size());
  outgoing_ += sealed;
}

bool Conversation::send() {
  while (sent_ < outgoing_.size()) {
    const ssize_t count =
        ::send(socket_.get(), outgoing_.data() + sent_, outgoing_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return false;
    if (count < 0) throw CommError("the connection is lost: " + errno_text());
    sent_ += static_cast<std::size_t>(count);
  }
  outgoing_.clear();
  sent_ = 0;
  return true;
}

std::optional<std::string> Conversation::hear() {
  constexpr std::size_t length_bytes = sizeof(std::uint64_t);
  if (!fill(length_bytes)) return std::nullopt;
  const std::uint64_t length = number_at(incoming_, 0);
  if (length > longest_text + Seal::tag_bytes) {
    throw CommError("a word of " + std::to_string(length) + " bytes came, which no rank sends");
  }
  if (!fill(length_bytes + length)) return std::nullopt;
  std::string text = incoming_seal_.open(std::string_view(incoming_).substr(length_bytes));
  incoming_ = {};
  return text;
}

// True once that many bytes have arrived. Memory grows with the bytes that arrive, not with the announced length.
bool Conversation::fill(std::size_t bytes) {
  while (incoming_.size() < bytes) {
    const std::size_t before = incoming_.size();
    incoming_.resize(before + std::min(bytes - before, piece_bytes));
    const ssize_t count = ::recv(socket_.get(), incoming_.data() + before, incoming_.size() - before, MSG_DONTWAIT);
    const int error = errno;
    incoming_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count > 0 || (count < 0 && error == EINTR)) continue;
    if (count < 0 && error == EAGAIN) return false;
    throw CommError(count == 0 ? "the other end closed the connection"
                               : std::string("the connection is lost: ") + std::strerror(error));
  }
  return true;
}

}  // namespace plait::comm
