#include "telemetry/Chart.h"

#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include <cairo.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/File.h"
#include "support/TemporaryFolder.h"

namespace adtrain {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::StartsWith;

/// A drawn chart's pixels.
class Picture {
 public:
  explicit Picture(const Chart& chart) {
    const TemporaryFolder folder;
    const auto path = folder.path() / "chart.png";
    chart.draw(path);
    surface_.reset(cairo_image_surface_create_from_png(path.c_str()));
  }
  int width() const { return cairo_image_surface_get_width(surface_.get()); }
  int height() const { return cairo_image_surface_get_height(surface_.get()); }
  uint32_t pixel(int x, int y) const {
    const unsigned char* row =
        cairo_image_surface_get_data(surface_.get()) + y * cairo_image_surface_get_stride(surface_.get());
    return reinterpret_cast<const uint32_t*>(row)[x] & 0xffffff;
  }
  /// Pixels of a colour, give or take the rounding of each channel.
  int count(uint32_t colour) const {
    int found = 0;
    for (int y = 0; y < height(); ++y) {
      for (int x = 0; x < width(); ++x) found += is_near(pixel(x, y), colour) ? 1 : 0;
    }
    return found;
  }
  static bool is_near(uint32_t a, uint32_t b) {
    for (const int shift : {0, 8, 16}) {
      if (std::abs(static_cast<int>(a >> shift & 255) - static_cast<int>(b >> shift & 255)) > 1) return false;
    }
    return true;
  }

 private:
  struct Destroy {
    void operator()(cairo_surface_t* surface) const { cairo_surface_destroy(surface); }
  };
  std::unique_ptr<cairo_surface_t, Destroy> surface_;
};

constexpr uint32_t kBlue = 0x0073b3, kVermilion = 0xd65e00;

Series rising(const std::string& name, double slope) {
  Series series{name, {}, {}, {}};
  for (int i = 0; i <= 20; ++i) {
    series.x.push_back(i);
    series.y.push_back(slope * i);
  }
  return series;
}

TEST(Chart, DrawsSvgPdfAndPngByTheEnding) {
  const TemporaryFolder folder;
  Chart chart;
  chart.title = "A title";
  chart.series = {rising("line", 1)};
  chart.draw(folder.path() / "deep" / "chart.svg");
  chart.draw(folder.path() / "deep" / "chart.png");
  EXPECT_THAT(read_file(folder.path() / "deep" / "chart.svg"), HasSubstr("<svg"));
  EXPECT_THAT(read_file(folder.path() / "deep" / "chart.svg"), HasSubstr("</svg>"));
  EXPECT_THAT(read_file(folder.path() / "deep" / "chart.png"), StartsWith("\x89PNG"));
  chart.draw(folder.path() / "deep" / "chart.pdf");
  EXPECT_THAT(read_file(folder.path() / "deep" / "chart.pdf"), StartsWith("%PDF-"));
  EXPECT_TRUE(Chart::can_draw("a.pdf"));
  EXPECT_FALSE(Chart::can_draw("a.gif"));
  EXPECT_THROW(chart.draw(folder.path() / "chart.gif"), std::invalid_argument);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path() / "deep"), {}), 3)
      << "no temporary file stays";
}

TEST(Chart, AnSvgSaysInWordsWhatItShows) {
  const TemporaryFolder folder;
  Chart chart;
  chart.title = "lr < 1 & more";
  chart.x_label = "episode";
  chart.y_label = "return";
  chart.series = {rising("lr 0.003 (n = 5)", 1), rising("lr 0.001 (n = 4)", 2)};
  chart.references = {{"oracle", 17}};
  chart.draw(folder.path() / "plain.svg");
  const std::string plain = read_file(folder.path() / "plain.svg");
  EXPECT_THAT(plain, HasSubstr("<title>lr &lt; 1 &amp; more</title>"));
  EXPECT_THAT(plain, HasSubstr("return over episode: lr 0.003 (n = 5); lr 0.001 (n = 4); oracle 17.00"));
  EXPECT_THAT(plain, testing::Not(HasSubstr("fill-opacity:0.15")));
  chart.series[1].band = Band::around(chart.series[1].y, std::vector<double>(21, 1.0));
  chart.draw(folder.path() / "banded.svg");
  EXPECT_THAT(read_file(folder.path() / "banded.svg"), HasSubstr("fill-opacity:0.15"));
}

TEST(Chart, ANarrowPageHasItsSizeAndSmallerText) {
  Chart chart;
  chart.title = "A title";
  chart.series = {rising("line", 1)};
  const auto columns_of_ink = [](const Picture& picture) {
    int found = 0;
    for (int x = 0; x < picture.width(); ++x) {
      bool any = false;
      for (int y = 0; y < 100; ++y) any = any || Picture::is_near(picture.pixel(x, y), 0x21242b);
      found += any ? 1 : 0;
    }
    return found;
  };
  const int on_a_wide_page = columns_of_ink(Picture(chart));
  chart.page = {.width = 240, .height = 160, .zoom = 0.5, .pixels_a_point = 2};
  const Picture narrow(chart);
  EXPECT_EQ(narrow.width(), 480);
  EXPECT_EQ(narrow.height(), 320);
  EXPECT_GT(narrow.count(kBlue), 500);
  EXPECT_LT(columns_of_ink(narrow), on_a_wide_page);
}

TEST(Chart, MoreLinesThanColoursAreDashed) {
  Chart chart;
  for (int i = 0; i < 7; ++i) chart.series.push_back(rising("", i == 0 ? 1 : 100));
  const int solid = Picture(chart).count(kBlue);
  std::swap(chart.series[0], chart.series[6]);
  chart.series[0].y.assign(21, std::nan(""));
  const int dashed = Picture(chart).count(kBlue);
  EXPECT_GT(dashed, solid / 4);
  EXPECT_LT(dashed, solid * 9 / 10);
}

TEST(Chart, ATallLegendLeavesRoomForThePlot) {
  Chart chart;
  for (int i = 0; i < 60; ++i) chart.series.push_back(rising("a line with a name of some length", 1 + i));
  chart.page.height = 200;
  EXPECT_GT(Picture(chart).count(kVermilion), 300);
}

TEST(Chart, ALongTitleIsSmallerAndWhole) {
  Chart chart;
  chart.series = {rising("line", 1)};
  const auto last_column_of_ink = [&chart](int lines) {
    const Picture picture(chart);
    int last = 0;
    for (int y = 0; y < lines; ++y) {
      for (int x = 0; x < picture.width(); ++x) {
        if (picture.pixel(x, y) != 0xffffff) last = std::max(last, x);
      }
    }
    return static_cast<double>(last) / picture.width();
  };
  chart.title = std::string(200, 'W');
  const double of_long = last_column_of_ink(80);
  EXPECT_GT(of_long, 0.9);
  EXPECT_LT(of_long, 0.99);
  chart.title = "W";
  EXPECT_LT(last_column_of_ink(80), 0.2);
}

TEST(Chart, DrawsEverySeriesInItsColourOnWhite) {
  Chart chart;
  chart.series = {rising("up", 1), rising("down", -1)};
  const Picture picture(chart);
  EXPECT_EQ(picture.width(), 1800);
  EXPECT_EQ(picture.height(), 1120);
  EXPECT_EQ(picture.pixel(0, 0), 0xffffffU);
  EXPECT_GT(picture.count(kBlue), 3000);
  EXPECT_GT(picture.count(kVermilion), 3000);
}

TEST(Chart, AFaintSeriesIsPaleAndLendsItsColourToTheNext) {
  Chart chart;
  Series raw = rising("", 1);
  raw.faint = true;
  chart.series = {raw};
  EXPECT_EQ(Picture(chart).count(kBlue), 0);
  chart.series = {raw, rising("smooth", 1)};
  const Picture both(chart);
  EXPECT_GT(both.count(kBlue), 3000);
  EXPECT_EQ(both.count(kVermilion), 0);
}

TEST(Chart, BandsAndReferenceLinesShow) {
  Chart chart;
  chart.title = "A title";
  chart.series = {rising("line", 1)};
  const Picture plain(chart);
  chart.series[0].band = Band::around(chart.series[0].y, std::vector<double>(21, 2.0));
  const Picture banded(chart);
  const uint32_t shade = 0xd9eaf4;  // 15 % of the blue on white
  EXPECT_GT(banded.count(shade), plain.count(shade) + 100'000);
  chart.series[0].band.high = chart.series[0].y;  // below the line alone
  EXPECT_LT(Picture(chart).count(shade), banded.count(shade) * 2 / 3);
  chart.series[0].band = Band::around(chart.series[0].y, std::vector<double>(21, 2.0));
  const uint32_t grey = 0x6b6e78;
  chart.references = {{"oracle", 15}};
  EXPECT_GT(Picture(chart).count(grey), banded.count(grey) + 1000);
}

TEST(Chart, LabelsOfReferencesStandOutsideTheData) {
  Chart chart;
  chart.series = {rising("line", 1)};
  for (double& y : chart.series[0].y) y = 1;  // right through where the label would be
  chart.references = {{"the same height", 1}, {"almost the same", 1.0001}};
  const Picture picture(chart);
  int rightmost = 0;
  for (int y = 300; y < picture.height(); ++y) {
    for (int x = 0; x < picture.width(); ++x) {
      if (Picture::is_near(picture.pixel(x, y), kBlue)) rightmost = std::max(rightmost, x);
    }
  }
  EXPECT_GT(rightmost, 1000);
  EXPECT_LT(rightmost, 1500);
}

TEST(Chart, BarsStandOnZeroAndSayTheirValues) {
  Chart chart;
  chart.title = "speeds";
  chart.y_label = "samples/s";
  chart.bars = {"one sample at a time", "2 ranks", "not measured", "slow"};
  chart.series = {{"", {0, 1, 3}, {400, 800, 12.345}, {}}};
  const Picture picture(chart);
  // The columns of the bars, and how high each is: 400 is half of 800.
  std::vector<std::pair<int, int>> bars;  // first column, pixels of it
  for (int x = 0, before = 0; x < picture.width(); ++x) {
    int high = 0;
    for (int y = 0; y < picture.height(); ++y) high += Picture::is_near(picture.pixel(x, y), kBlue) ? 1 : 0;
    if (high > 0 && before == 0) bars.emplace_back(x, 0);
    if (high > 0) bars.back().second = std::max(bars.back().second, high);
    before = high;
  }
  ASSERT_EQ(bars.size(), 3U);
  EXPECT_NEAR(bars[0].second, bars[1].second / 2.0, 2);
  EXPECT_NEAR(bars[2].second, bars[1].second * 12.345 / 800, 2);
  const int slot = bars[1].first - bars[0].first;
  EXPECT_NEAR(bars[2].first - bars[1].first, 2 * slot, 2) << "what was not measured keeps its place";
  const TemporaryFolder folder;
  chart.draw(folder.path() / "bars.svg");
  EXPECT_THAT(read_file(folder.path() / "bars.svg"),
              HasSubstr("<desc>samples/s: one sample at a time 400; 2 ranks 800; slow 12.3</desc>"));
}

TEST(Chart, AnyContentIsDrawn) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  std::vector<Chart> charts(10);
  charts[1].series = {{"empty", {}, {}, {}}};
  charts[2].series = {{"point", {3}, {4}, {{3}, {5}}}};
  charts[3].series = {{"constant", {1, 2, 3}, {5, 5, 5}, {{5, 5, 5}, {5, 5, 5}}}};
  charts[4].series = {
      {"holes", {1, 2, 3, 4, 5}, {1, nan, 2, infinity, 1}, {{0, 0, nan, 0, 0}, {2, 2, infinity, 2}}}};
  charts[5].series = {{"all lost", {1, 2}, {nan, nan}, {}}};
  charts[6].series = {{"uneven", {1, 2, 3}, {1, 2}, {{0}, {2}}}};
  charts[7].series = {{"huge", {1, 2, 3}, {1e300, -1e99, 1e99}, {}}};
  charts[7].references = {{"lost", nan}, {"far", 1e200}};
  charts[8].bars = {"", std::string(300, 'x'), "a b c d e f"};
  charts[8].series = {{"negative", {0, 1, 2}, {-1, nan, 1e-30}, {}}};
  charts[9].bars = {"alone"};
  charts[9].series = {{"beside", {7}, {1}, {}}};
  for (Chart& chart : charts) {
    for (const bool log_y : {false, true}) {
      chart.log_y = log_y;
      chart.title = "robust ü";
      chart.from_zero = !log_y;
      EXPECT_EQ(Picture(chart).pixel(0, 0), 0xffffffU);
    }
  }
}

TEST(Chart, ALonePointIsADot) {
  Chart chart;
  chart.series = {{"", {1, 2, 3}, {1, std::nan(""), 2}, {}}};
  EXPECT_GT(Picture(chart).count(kBlue), 50);
}

TEST(Chart, SmoothingIsTheWeightedMeanOfNeighbours) {
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<double> values(50);
  for (double& value : values) value = normal(random);
  values[10] = std::nan("");
  const double weight = 0.8;
  std::vector<double> expected;
  for (size_t i = 0; i < values.size(); ++i) {
    double sum = 0, mass = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      if (std::isnan(values[j])) continue;
      const double share = std::pow(weight, std::abs(static_cast<double>(i) - static_cast<double>(j)));
      sum += share * values[j];
      mass += share;
    }
    expected.push_back(sum / mass);
  }
  EXPECT_THAT(smoothed(values, weight), Pointwise(DoubleNear(1e-9), expected));
  EXPECT_EQ(smoothed({1, 2, 3}, 0), (std::vector<double>{1, 2, 3}));
  EXPECT_TRUE(smoothed({}, 0.9).empty());
}

}  // namespace
}  // namespace adtrain
