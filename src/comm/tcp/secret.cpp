#include "comm/tcp/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <cstring>
#include <memory>

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

}  // namespace plait::comm
