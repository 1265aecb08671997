#include "comm/tcp/proof.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "comm/tcp/socket.h"
#include "core/error.h"

namespace plait::comm {
namespace {

const unsigned char* raw(const void* bytes) { return static_cast<const unsigned char*>(bytes); }
unsigned char* raw(void* bytes) { return static_cast<unsigned char*>(bytes); }

void check_crypto(bool worked, const char* what) {
  if (!worked) throw CommError(std::string("OpenSSL cannot ") + what + " (is its FIPS or provider configuration broken?)");
}

}  // namespace

bool equal_in_constant_time(const Digest& a, const Digest& b) { return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0; }

Digest random_digest() {
  Digest digest{};
  check_crypto(RAND_bytes(raw(digest.data()), static_cast<int>(digest.size())) == 1, "make random bytes");
  return digest;
}

Secret Secret::from_token(std::string_view token) {
  Digest digest{};
  SHA256(raw(token.data()), token.size(), raw(digest.data()));
  return Secret(digest);
}

Digest Secret::authenticate(std::string_view message) const {
  Digest digest{};
  unsigned int length = 0;
  const void* made = HMAC(EVP_sha256(), key_.data(), static_cast<int>(key_.size()), raw(message.data()), message.size(),
                          raw(digest.data()), &length);
  check_crypto(made && length == digest.size(), "compute an HMAC");
  return digest;
}

// The key seals one direction of one conversation, so the number of the message makes each nonce new.
std::string Seal::apply(bool closing, std::string_view text, std::string_view tag, std::string& tag_out) {
  std::array<unsigned char, 12> nonce{};
  std::memcpy(nonce.data(), &count_, sizeof count_);
  ++count_;
  const std::unique_ptr<EVP_CIPHER_CTX, decltype(&EVP_CIPHER_CTX_free)> cipher(EVP_CIPHER_CTX_new(), &EVP_CIPHER_CTX_free);
  std::string result(text.size(), '\0');
  int done = 0, more = 0;
  check_crypto(cipher && EVP_CipherInit_ex(cipher.get(), EVP_aes_256_gcm(), nullptr, raw(secret_.key().data()), nonce.data(),
                                           closing ? 1 : 0) == 1,
               "set up AES-256-GCM");
  check_crypto(text.empty() || EVP_CipherUpdate(cipher.get(), raw(result.data()), &done, raw(text.data()),
                                                static_cast<int>(text.size())) == 1,
               "seal or open a message");
  if (!closing) {
    std::array<char, tag_bytes> expected{};
    std::memcpy(expected.data(), tag.data(), expected.size());
    EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_SET_TAG, static_cast<int>(tag_bytes), expected.data());
  }
  std::array<unsigned char, 16> rest{};  // GCM leaves nothing for the end
  if (EVP_CipherFinal_ex(cipher.get(), rest.data(), &more) != 1) {
    throw CommError("a message was changed on its way, or belongs to another job");
  }
  if (closing) {
    tag_out.resize(tag_bytes);
    EVP_CIPHER_CTX_ctrl(cipher.get(), EVP_CTRL_GCM_GET_TAG, static_cast<int>(tag_bytes), tag_out.data());
  }
  return result;
}

std::string Seal::close(std::string_view message) {
  std::string tag;
  std::string sealed = apply(true, message, {}, tag);
  sealed += tag;
  return sealed;
}

std::string Seal::open(std::string_view sealed) {
  if (sealed.size() < tag_bytes) throw CommError("what arrived is too short to be of this job");
  const std::size_t length = sealed.size() - tag_bytes;
  std::string unused;
  return apply(false, sealed.substr(0, length), sealed.substr(length), unused);
}

namespace {

constexpr std::string_view greeting("plait-1\0", 8);
constexpr const char* no_secret = " does not know this job's secret, or is of another job";
constexpr std::size_t digest_bytes = std::tuple_size_v<Digest>;
constexpr std::size_t hello_bytes = greeting.size() + sizeof(std::uint32_t) + digest_bytes;

std::string text_of(const Digest& digest) { return {reinterpret_cast<const char*>(digest.data()), digest.size()}; }

Digest digest_from(std::string_view text) {
  Digest digest{};
  std::memcpy(digest.data(), text.data(), digest.size());
  return digest;
}

}  // namespace

Proof::Proof(FileDescriptor socket, Side side, const Credentials& credentials, std::uint32_t number)
    : socket_(std::move(socket)), side_(side), credentials_(credentials), number_(number), step_(Step::connecting) {
  if (side_ == Side::listener) expect(Step::hello, hello_bytes);
}

Proof::State Proof::advance() {
  if (state_ == State::going_on && step_ == Step::connecting) {
    if (const std::string problem = problem_of(socket_); !problem.empty()) return refuse(problem);
    std::string hello(greeting);
    hello.append(reinterpret_cast<const char*>(&number_), sizeof number_);
    hello += text_of(random_digest());
    challenges_ = hello;
    expect(Step::challenge, digest_bytes);
    send(hello);
  }
  while (state_ == State::going_on && receive()) {
    switch (step_) {
      case Step::hello: take_hello(); break;
      case Step::challenge: take_challenge(); break;
      case Step::caller_claim:
        take_claim_of("caller");
        if (state_ == State::done) send(text_of(claim_of("listener")));
        break;
      case Step::listener_claim: take_claim_of("listener"); break;
      case Step::connecting: break;
    }
  }
  return state_;
}

void Proof::take_hello() {
  std::memcpy(&number_, received_.data() + greeting.size(), sizeof number_);
  challenges_ = received_;
  const std::string own = text_of(random_digest());
  challenges_ += own;
  expect(Step::caller_claim, digest_bytes);
  send(own);
}

void Proof::take_challenge() {
  challenges_ += received_;
  expect(Step::listener_claim, digest_bytes);
  send(text_of(claim_of("caller")));
}

void Proof::take_claim_of(const char* side) {
  if (equal_in_constant_time(digest_from(received_), claim_of(side))) {
    state_ = State::done;
  } else {
    refuse(std::string(side_ == Side::caller ? "who listens there" : "who calls") + no_secret);
  }
}

Digest Proof::claim_of(const char* side) const {
  const std::string& context = credentials_.context;
  return credentials_.secret.authenticate(std::string(side) + '\0' + std::to_string(context.size()) + '\0' + context +
                                          challenges_);
}

Secret Proof::session() const { return Secret(claim_of("session")); }

// True once this step's message is complete. A wrong greeting is refused as soon as it shows.
bool Proof::receive() {
  while (received_.size() < expected_) {
    std::array<char, hello_bytes + digest_bytes> bytes{};
    const ssize_t count = ::recv(socket_.get(), bytes.data(), expected_ - received_.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EINPROGRESS)) return false;
    if (count <= 0) {
      // A listener does not explain itself to a caller whose claim is wrong.
      const std::string closed = step_ == Step::listener_claim
                                     ? std::string("who listens there") + no_secret
                                     : "the other end closed the connection before it had proved itself";
      refuse(count == 0 ? closed : errno_text());
      return false;
    }
    received_.append(bytes.data(), static_cast<std::size_t>(count));
    const std::size_t shown = std::min(received_.size(), greeting.size());
    if (step_ == Step::hello && std::string_view(received_).substr(0, shown) != greeting.substr(0, shown)) {
      refuse("it does not speak plait's language");
      return false;
    }
  }
  return true;
}

// The socket's buffer is empty before each message, so it takes the whole message.
void Proof::send(const std::string& text) {
  const ssize_t sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent != static_cast<ssize_t>(text.size())) refuse(sent < 0 ? errno_text() : "it does not accept the whole message");
}

void Proof::expect(Step step, std::size_t bytes) {
  step_ = step;
  expected_ = bytes;
  received_.clear();
}

Proof::State Proof::refuse(const std::string& why) {
  why_ = why;
  return state_ = State::refused;
}

}  // namespace plait::comm
