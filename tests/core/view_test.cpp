// Shapes and views.
#include "core/view.h"

#include <gmock/gmock.h>

#include <vector>

#include "core/error.h"
#include "core/error_of.h"

namespace plait {
namespace {

using testing::HasSubstr;

TEST(ShapeTest, CountsComparesAndPrints) {
  EXPECT_EQ(Shape().elements(), 1);  // a scalar
  EXPECT_EQ(Shape().to_string(), "[]");
  EXPECT_EQ((Shape{32, 1024, 768}).to_string(), "[32, 1024, 768]");
  EXPECT_EQ((Shape{32, 1024, 768}).elements(), 32 * 1024 * 768);
  EXPECT_EQ((Shape{4, 0, 3}).elements(), 0);
  EXPECT_EQ((Shape{65536, 65536}).elements(), std::int64_t{1} << 32);
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_NE((Shape{2, 3}), (Shape{2, 3, 1}));
  EXPECT_EQ((Shape{5, 6, 7, 8}).rank(), 4);
}

TEST(ShapeTest, RefusesFiveDimsAndNegativeOnes) {
  EXPECT_THAT(error_of<InternalError>([] { Shape{1, 2, 3, 4, 5}; }), HasSubstr("more than four dims"));
  EXPECT_THAT(error_of<InternalError>([] { Shape{2, -1}; }), HasSubstr("negative dim"));
}

TEST(ViewTest, KnowsItsBytes) {
  std::vector<std::uint16_t> memory(24);
  const View view(memory.data(), DType::bf16, {2, 3, 4});
  EXPECT_EQ(view.elements(), 24);
  EXPECT_EQ(view.bytes(), 48u);
  EXPECT_TRUE(view);
  EXPECT_FALSE(View());
}

TEST(ViewTest, HandsOutElementsOfItsOwnTypeOnly) {
  std::vector<float> memory(4);
  const View view(memory.data(), DType::f32, {4});
  EXPECT_EQ(view.as<float>(), memory.data());
  EXPECT_THAT(error_of<InternalError>([&] { static_cast<void>(view.as<BFloat16>()); }), HasSubstr("holds f32, asked for bf16"));
}

TEST(ViewTest, ReshapesTheSameMemory) {
  std::vector<float> memory(24);
  const View view(memory.data(), DType::f32, {4, 6});
  const View other = view.reshaped({2, 3, 4});
  EXPECT_EQ(other.data, view.data);
  EXPECT_EQ(other.shape, (Shape{2, 3, 4}));
  EXPECT_THAT(error_of<InternalError>([&] { static_cast<void>(view.reshaped({5, 5})); }), HasSubstr("[4, 6] to [5, 5]"));
}

TEST(ViewTest, TakesRowsOfTheFirstDimWhateverTheRank) {
  std::vector<float> memory(120);
  const std::vector<Shape> shapes = {{5}, {5, 24}, {5, 4, 6}, {5, 2, 3, 4}};
  for (const Shape& shape : shapes) {
    const View view(memory.data(), DType::f32, shape);
    const std::int64_t per_row = shape.elements() / 5;
    const View part = view.rows(2, 3);
    EXPECT_EQ(part.as<float>(), memory.data() + 2 * per_row) << shape.to_string();
    EXPECT_EQ(part.shape.rank(), shape.rank());
    EXPECT_EQ(part.elements(), 3 * per_row);
    EXPECT_EQ(view.rows(5, 0).elements(), 0);
  }
}

TEST(ViewTest, RefusesRowsOutsideTheFirstDim) {
  std::vector<float> memory(10);
  const View view(memory.data(), DType::f32, {5, 2});
  for (const auto& [first, count] : std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 2}, {-1, 1}, {0, -1}, {6, 0}}) {
    EXPECT_THAT(error_of<InternalError>([&] { static_cast<void>(view.rows(first, count)); }), HasSubstr("out of range"))
        << first;
  }
  EXPECT_THAT(error_of<InternalError>([&] { static_cast<void>(View(memory.data(), DType::f32, {}).rows(0, 0)); }),
              HasSubstr("out of range"));
}

}  // namespace
}  // namespace plait
