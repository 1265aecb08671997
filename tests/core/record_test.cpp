// Records that are declared once: what is written, what is read back, and how anything else is refused.
#include "core/record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <stdexcept>

#include "core/error.h"
#include "core/error_of.h"

namespace plait::test {

enum class Colour { red, blue };

struct Wheel {
  double inches = 0;
  std::int64_t spokes = 0;
  friend bool operator==(const Wheel&, const Wheel&) = default;
};

struct Bicycle {
  std::string name;
  Colour colour = Colour::red;
  bool has_bell = false;
  int gears = 1;
  std::optional<double> kilograms, price;
  std::optional<std::string> owner;
  std::vector<Wheel> wheels;
  std::vector<std::string> notes;
  std::map<std::string, std::uint64_t> parts;
  std::vector<std::pair<std::string, std::string>> history;  // in order
  std::string serial;
  friend bool operator==(const Bicycle&, const Bicycle&) = default;
};

// Inches of the wheels of one bicycle are bounded by its frame's.
struct Frame {
  double most_inches;
};

enum class Gear { low, high };  // without names

// A lamp of a bicycle, whose light follows from its battery.
struct Lamp {
  double volts = 0, amperes = 0;
  Gear gear = Gear::low;
  std::string colour;
  double watts() const { return volts * amperes; }
};

// Written backwards.
struct Backwards {
  std::string read(const auto& field) const {
    const std::string text = field.text(16);
    return {text.rbegin(), text.rend()};
  }
  nlohmann::ordered_json write(const std::string& text) const { return std::string(text.rbegin(), text.rend()); }
};

void declare(auto& field, Of<Wheel> auto& wheel, const Frame& frame) {
  field("inches", wheel.inches, record::number(0, frame.most_inches));
  field("spokes", wheel.spokes);
}

void declare(auto& field, Of<Bicycle> auto& bicycle) {
  field.constant("format", "bicycle", "");
  field("name", bicycle.name, record::text(8));
  field("colour", bicycle.colour);
  field("has_bell", bicycle.has_bell);
  field.unless(1, "gears", bicycle.gears, record::whole(1, 30));
  field("kilograms", bicycle.kilograms, record::at_least(0));
  field.or_null("price", bicycle.price);
  if (bicycle.price) field.required("owner", bicycle.owner);
  field("wheels", bicycle.wheels, record::at_most(3, Frame{29}));
  field.check(bicycle.wheels.size() != 1, "wheels", "must be more than one");
  field.with_default({}, "notes", bicycle.notes, record::at_most(2, record::lines(64)));
  field("parts", bicycle.parts, record::at_most(2));
  field("history", bicycle.history, record::at_most(2));
  field("serial", bicycle.serial, Backwards());
}

void declare(auto& field, Of<Lamp> auto& lamp) {
  field.derived("watts", lamp.watts());
  field.object("battery", [&](auto& battery) {
    battery("volts", lamp.volts);
    battery("amperes", lamp.amperes, record::at_least(0));
  });
  field("gear", lamp.gear, record::whole(0, 1));
  field.renamed("color", "colour", lamp.colour);
}

}  // namespace plait::test

namespace plait {
template <>
inline constexpr auto names<test::Colour> =
    std::to_array<Name<test::Colour>>({{test::Colour::red, "red"}, {test::Colour::blue, "blue"}});
}  // namespace plait

namespace plait::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::ordered_json;

Bicycle example() {
  return {.name = "ü",
          .colour = Colour::blue,
          .has_bell = true,
          .gears = 1,
          .kilograms = {},
          .price = 0.1,
          .owner = "me",
          .wheels = {{28, 36}, {28.5, -1}},
          .notes = {},
          .parts = {{"saddle", ~std::uint64_t{0}}},
          .history = {{"z", "made"}, {"a", "sold"}},
          .serial = "123"};
}

constexpr const char* text_of_example =
    R"({"format":"bicycle","name":"ü","colour":"blue","has_bell":true,"price":0.1,"owner":"me",)"
    R"("wheels":[{"inches":28.0,"spokes":36},{"inches":28.5,"spokes":-1}],"notes":[],"parts":{"saddle":18446744073709551615},)"
    R"("history":{"z":"made","a":"sold"},"serial":"321"})";

JsonSource file() { return {.name = "file"}; }

template <typename J = Json>
Bicycle read(const J& json, const JsonSource& source = file()) {
  return record_from<Bicycle>(BasicJsonField<J>(json, source));
}

TEST(Record, IsWrittenInTheOrderOfItsDeclarationAndReadsBack) {
  EXPECT_EQ(record_json(example()).dump(), text_of_example);
  EXPECT_EQ(read(Json::parse(text_of_example)), example());
  EXPECT_EQ(read(nlohmann::json::parse(text_of_example)).wheels, example().wheels) << "also from JSON that is sorted";
}

TEST(Record, WhatIsLeftOutHasItsDefault) {
  Bicycle bare = example();
  bare.price.reset(), bare.owner.reset(), bare.gears = 21, bare.kilograms = 9;
  Json json = record_json(bare);
  EXPECT_TRUE(json.at("price").is_null());
  EXPECT_FALSE(json.contains("owner"));
  EXPECT_EQ(json.at("gears"), 21);
  EXPECT_EQ(read(json), bare);
  json.erase("notes"), json.erase("gears"), json.erase("price");
  bare.gears = 1;
  EXPECT_EQ(read(json), bare);
}

std::string refusal(const std::string& key, const Json& value, const JsonSource& source = file()) {
  Json json = Json::parse(text_of_example);
  json[Json::json_pointer(key)] = value;
  return error_of<ConfigError>([&] { read(json, source); });
}

TEST(Record, AnythingElseIsRefusedByPlaceValueAndRule) {
  EXPECT_EQ(refusal("/name", 3), "file: 'name' is 3: must be a string");
  EXPECT_EQ(refusal("/name", "far too long"), "file: 'name' is \"far too long\": must be a string of at most 8 bytes");
  EXPECT_EQ(refusal("/format", "car"), "file: 'format' is \"car\": must be \"bicycle\"");
  EXPECT_EQ(refusal("/colour", "green"), "file: 'colour' is \"green\": must be red or blue");
  EXPECT_EQ(refusal("/has_bell", 1), "file: 'has_bell' is 1: must be true or false");
  EXPECT_EQ(refusal("/owner", nullptr), "file: 'owner' is null: must be a string");
  EXPECT_EQ(refusal("/wheels/1/inches", 30), "file: 'wheels[1].inches' is 30: must be a number from 0 to 29");
  EXPECT_EQ(refusal("/wheels/0", 3), "file: 'wheels[0]' is 3: must be an object");
  EXPECT_EQ(refusal("/wheels", Json::object()), "file: 'wheels' is {...}: must be a list");
  EXPECT_EQ(refusal("/wheels", Json::array({{{"inches", 1}, {"spokes", 1}}})),
            "file: 'wheels' is [...]: must be more than one");
  EXPECT_EQ(refusal("/wheels", Json::array({1, 2, 3, 4})), "file: 'wheels' is [...]: must be a list of at most 3, not 4");
  EXPECT_EQ(refusal("/parts/saddle", -1), "file: 'parts.saddle' is -1: must be a whole number of at least 0");
  EXPECT_THAT(refusal("/parts", {{"a", 1}, {"b", 1}, {"c", 1}}), HasSubstr("must be an object of at most 2, not 3"));
  for (const Json& gears : {Json(0), Json(31), Json(1.5), Json(1e300), Json(~std::uint64_t{0}), Json("2")})
    EXPECT_THAT(refusal("/gears", gears), HasSubstr("must be a whole number from 1 to 30"));
  for (const Json& weight : {Json(-1), Json("9"), Json(NAN), Json(INFINITY)})
    EXPECT_THAT(refusal("/kilograms", weight), HasSubstr("must be a number of at least 0"));
  Json json = Json::parse(text_of_example);
  json.erase("serial");
  EXPECT_EQ(error_of<ConfigError>([&] { read(json); }), "file: 'serial' is missing: must be a string");
  EXPECT_EQ(error_of<ConfigError>([&] { read(Json(3)); }), "file: it is 3: must be an object");
}

TEST(Record, DerivedValuesAreWrittenAndOldNamesAreRead) {
  constexpr const char* text = R"({"watts":6.0,"battery":{"volts":3.0,"amperes":2.0},"gear":1,"colour":"red"})";
  EXPECT_EQ(record_json(Lamp{3, 2, Gear::high, "red"}).dump(), text);
  const JsonSource source{.name = "lamp", .known_keys_only = true};
  const auto read_lamp = [&](const std::string& changes) {
    Json json = Json::parse(text);
    json.merge_patch(Json::parse(changes));
    return record_from<Lamp>(JsonField(json, source));
  };
  const auto refusal_of = [&](const std::string& changes) { return error_of<ConfigError>([&] { read_lamp(changes); }); };
  EXPECT_EQ(read_lamp(R"({"watts":1})").watts(), 6) << "it follows from the battery";
  EXPECT_EQ(read_lamp("{}").gear, Gear::high);
  EXPECT_EQ(read_lamp(R"({"colour":null,"color":"blue"})").colour, "blue");
  EXPECT_EQ(refusal_of(R"({"colour":null})"), "lamp: 'colour' is missing: must be a string");
  EXPECT_EQ(refusal_of(R"({"gear":2})"), "lamp: 'gear' is 2: must be a whole number from 0 to 1");
  EXPECT_EQ(refusal_of(R"({"battery":{"amperes":-1}})"), "lamp: 'battery.amperes' is -1: must be a number of at least 0");
  EXPECT_EQ(refusal_of(R"({"battery":{"ohms":1}})"), "lamp: 'battery.ohms' is 1: unknown key");
}

TEST(Record, AMessageIsShortAndPrintableWhateverTheFileHolds) {
  const std::string long_text = refusal("/name", std::string(1 << 20, 'x'));
  EXPECT_LT(long_text.size(), 200U);
  EXPECT_THAT(refusal("/colour", "\x1b[2J"), HasSubstr("\"?[2J\""));
}

TEST(Record, ASourceSaysWhatItsValuesMayBeAndHowTheyAreRefused) {
  JsonSource source{.name = "a peer",
                    .remedy = "; say it again",
                    .known_keys_only = true,
                    .null_is_missing = false,
                    .control_characters = false,
                    .longest_text = 4,
                    .refuse = [](const std::string& path, const std::string& value, const std::string& rule) {
                      throw ConfigError(path + "|" + value + "|" + rule);
                    }};
  EXPECT_EQ(refusal("/wheels/0/size", 1, source), "wheels[0].size|1|unknown key; say it again");
  EXPECT_EQ(refusal("/owner", "yours", source), "owner|yours|must be a string of at most 4 bytes; say it again");
  EXPECT_EQ(refusal("/name", "a\n", source), "name|a?|must be a string without control characters; say it again");
  EXPECT_EQ(refusal("/kilograms", nullptr, source), "kilograms|null|must be a number of at least 0; say it again");
  Json json = Json::parse(text_of_example);
  json["notes"] = {"two\nlines"};
  EXPECT_EQ(read(json, source).notes.front(), "two\nlines");
}

}  // namespace
}  // namespace plait::test
