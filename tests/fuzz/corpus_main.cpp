// Runs a fuzz target without a fuzzer: over every file of the given folders as it is, then over a fixed number of mutations of
// them, which are the same in every run.
//
//   topology_import_corpus MUTATIONS FOLDER...
//
// Exit status 1 where the target threw; the input is then in ./fuzz-failure.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % std::max<std::size_t>(limit, 1));
}

// Numbers at the edges of what fits, and characters that mean something in XML, JSON, YAML and tables.
const std::vector<std::string>& tokens() {
  static const std::vector<std::string> list = {"0",
                                                "-1",
                                                "1",
                                                "2147483648",
                                                "-9223372036854775808",
                                                "18446744073709551616",
                                                "1e308",
                                                "1e-9",
                                                "nan",
                                                ".inf",
                                                "\"",
                                                "'",
                                                "<",
                                                ">",
                                                "/>",
                                                "{",
                                                "}",
                                                "[",
                                                "]",
                                                ":",
                                                ",",
                                                "&a",
                                                "*a",
                                                "!!",
                                                "\n",
                                                "\t",
                                                "  ",
                                                "NV1",
                                                "SYS",
                                                "X",
                                                "~",
                                                "null",
                                                "true",
                                                "\xff",
                                                std::string(1, '\0')};
  return list;
}

std::string mutated(std::string text, const std::vector<std::string>& corpus, Random& random) {
  const std::size_t changes = 1 + below(random, 4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = below(random, text.size() + 1), length = below(random, 24);
    switch (below(random, 7)) {
      case 0: text.erase(std::min(at, text.size()), length); break;
      case 1: text.resize(at); break;
      case 2: text.insert(at, tokens()[below(random, tokens().size())]); break;
      case 3:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 4: text.insert(at, text.substr(below(random, text.size() + 1), length * 8)); break;
      case 5: {
        const std::string& other = corpus[below(random, corpus.size())];
        text.insert(at, other.substr(below(random, other.size() + 1), length * 8));
        break;
      }
      default: {  // a number becomes another
        const std::size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        const std::size_t end = std::min(text.find_first_not_of("0123456789", digit), text.size());
        text.replace(digit, end - digit, tokens()[below(random, 8)]);
      }
    }
  }
  return text;
}

bool survives(const std::string& text, const std::string& name) {
  try {
    // A copy of the exact size, so that reading past the end is seen.
    const std::vector<std::uint8_t> bytes(text.begin(), text.end());
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    return true;
  } catch (const std::exception& error) {
    std::ofstream("fuzz-failure", std::ios::binary) << text;
    std::fprintf(stderr, "%s: %s\nthe input is in ./fuzz-failure\n", name.c_str(), error.what());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MUTATIONS FOLDER...\n", argv[0]);
    return 2;
  }
  const long mutations = std::atol(argv[1]);
  std::vector<std::string> corpus, names;
  for (int i = 2; i < argc; ++i) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(argv[i])) {
      if (entry.is_regular_file()) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    for (const auto& file : files) {
      std::ifstream stream(file, std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
      names.push_back(file.string());
    }
  }
  if (corpus.empty()) {
    std::fprintf(stderr, "the corpus is empty\n");
    return 2;
  }
  const auto started = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < corpus.size(); ++i) {
    if (!survives(corpus[i], names[i])) return 1;
  }
  Random random(20251121);
  for (long i = 0; i < mutations; ++i) {
    const std::size_t from = below(random, corpus.size());
    if (!survives(mutated(corpus[from], corpus, random), "mutation " + std::to_string(i) + " of " + names[from])) return 1;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::printf("%zu files and %ld mutations in %.1f s\n", corpus.size(), mutations, seconds);
  return 0;
}
