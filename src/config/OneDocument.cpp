#include "config/OneDocument.h"

#include <sstream>

#include <yaml-cpp/eventhandler.h>

namespace adtrain {
namespace {

/// Records only where the last document began.
class DocumentStart : public YAML::EventHandler {
 public:
  YAML::Mark mark;

  void OnDocumentStart(const YAML::Mark& start) override { mark = start; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
  }
  void OnMapEnd() override {}
};

}  // namespace

/// Two documents are all that is ever parsed: of a text such as "," yaml-cpp's LoadAll makes empty documents
/// without end.
OneDocument OneDocument::parse(const std::string& text) {
  OneDocument document{YAML::Load(text), std::nullopt};
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart start;
  if (parser.HandleNextDocument(start) && parser.HandleNextDocument(start)) document.more = start.mark;
  return document;
}

std::string reason_of(const YAML::Exception& fault) {
  if (!fault.msg.starts_with(YAML::ErrorMsg::UNKNOWN_ANCHOR)) return fault.msg;
  return "a text that begins with * stands in quotes, as \"*.norm_1\"";
}

}  // namespace adtrain
