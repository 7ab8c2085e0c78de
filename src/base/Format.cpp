// The one file that compiles fmt's implementation. Its headers alone (FMT_HEADER_ONLY) would compile it in
// every file that formats anything, which took five of seven seconds of an average file.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {
template auto dragonbox::to_decimal(float) -> dragonbox::decimal_fp<float>;
template auto dragonbox::to_decimal(double) -> dragonbox::decimal_fp<double>;
template auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template auto decimal_point_impl(locale_ref) -> char;
template void buffer<char>::append(const char*, const char*);
}  // namespace detail
FMT_END_NAMESPACE
