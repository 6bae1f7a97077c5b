// Hostile and odd headers and indexes: each is refused with one line, pinned here in full.
#include "weights/safetensors.h"

#include <gtest/gtest.h>

#include "testing/safetensors_writer.h"
#include "testing/seeds.h"

namespace wp {
namespace {

Result<SafetensorsHeader> parse(std::string_view file) {
  return parse_safetensors_header(std::as_bytes(std::span(file.data(), file.size())),
                                  static_cast<int64_t>(file.size()));
}

std::string parsed_fault(std::string_view file) {
  auto parsed = parse(file);
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.error().code, ErrorCode::bad_file);
  EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
  return parsed.error().message;
}

// What is said of a file with this header and 64 bytes of data.
std::string fault_of(std::string_view header) {
  return parsed_fault(testing::safetensors_file(header, std::string(64, '\0')));
}

// A header of one tensor "w" with these members.
std::string one(std::string_view dtype, std::string_view shape, std::string_view offsets) {
  return cat("{\"w\":{\"dtype\":", dtype, ",\"shape\":", shape, ",\"data_offsets\":", offsets, "}}");
}

TEST(SafetensorsHeader, ReadsWhatTheWriterWrote) {
  const std::string file = testing::safetensors_file({{"b", "F32", {2, 3}, std::string(24, 'b')},
                                                      {"a", "BF16", {}, "aa"},
                                                      {"empty", "I64", {0, 4}, ""},
                                                      {"five", "U8", {1, 1, 1, 1, 3}, "fff"},
                                                      {"bits", "F4", {4}, "xy"}});
  auto parsed = parse(file);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  ASSERT_EQ(parsed->tensors.size(), 5u);
  const auto& tensors = parsed->tensors;
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[2].name, "bits");
  EXPECT_EQ(tensors[3].name, "empty");
  EXPECT_EQ(tensors[4].name, "five");
  EXPECT_EQ(tensors[1].shape, (Shape{2, 3}));
  EXPECT_EQ(tensors[1].type->dtype, DType::f32);
  EXPECT_EQ(file.substr(static_cast<size_t>(tensors[1].begin), 24), std::string(24, 'b'));
  EXPECT_EQ(tensors[0].shape.rank(), 0);
  EXPECT_EQ(file.substr(static_cast<size_t>(tensors[0].begin), 2), "aa");
  EXPECT_FALSE(tensors[2].type->supported);
  EXPECT_EQ(tensors[3].begin, tensors[3].end);
}

TEST(SafetensorsHeader, PassesWhatTheFormatLeavesOpen) {
  EXPECT_EQ(fault_of("{}"), "accepted");
  EXPECT_EQ(fault_of("{}      "), "accepted");
  EXPECT_EQ(fault_of(one("\"U8\"", "[4]", "[8,12]")), "accepted");  // Gaps before and after.
  EXPECT_EQ(fault_of(R"({"__metadata__":{"a":"b","c":{"d":[1,2,{}]}},"w":{"x":[[1]],"data_offsets":[0,2],)"
                     R"("shape":[2],"dtype":"I8","y":null}})"),
            "accepted");
  // An empty tensor inside the span of another shares no byte with it.
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                     R"("b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})"),
            "accepted");
}

TEST(SafetensorsHeader, F8RefusesLengthsThatDoNotFit) {
  EXPECT_EQ(parsed_fault(""), "header: expected a length of 8 bytes, found a file of 0");
  EXPECT_EQ(parsed_fault("\x01\0\0\0"), "header: expected a length of 8 bytes, found a file of 1");
  EXPECT_EQ(parsed_fault(std::string(8, '\0')), "header: expected a JSON object, found none");
  EXPECT_EQ(parsed_fault(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            "header: expected at most the 2 bytes that follow, found a length of 3");
  EXPECT_EQ(parsed_fault(std::string(8, '\xff')),
            "header: expected at most 100000000 bytes, found a length of 18446744073709551615");
  EXPECT_EQ(parsed_fault(std::string("\x01\xe1\xf5\x05\0\0\0\0{}", 10)),
            "header: expected at most 100000000 bytes, found a length of 100000001");
  // The file says it is longer than the bytes at hand.
  const std::string cut = testing::safetensors_file("{\"w\":1}", "").substr(0, 10);
  EXPECT_EQ(parse_safetensors_header(std::as_bytes(std::span(cut.data(), cut.size())), 1000).error().message,
            "header: expected at most the 2 bytes that follow, found a length of 7");
}

TEST(SafetensorsHeader, RefusesWhatIsNoHeader) {
  EXPECT_EQ(fault_of("[]"), "header: expected a JSON object, found a list");
  EXPECT_EQ(fault_of("7"), "header: expected a JSON object, found 7");
  EXPECT_EQ(fault_of("\"x\""), "header: expected a JSON object, found \"x\"");
  EXPECT_EQ(fault_of("null"), "header: expected a JSON object, found null");
  EXPECT_EQ(fault_of("{\"w\":"), "header: expected JSON in UTF-8, found a fault at byte 6");
  EXPECT_EQ(fault_of("{} x"), "header: expected JSON in UTF-8, found a fault at byte 4");
  EXPECT_EQ(fault_of("{\"w\xff\":1}"), "header: expected JSON in UTF-8, found a fault at byte 4");
  EXPECT_EQ(fault_of(std::string_view("{}\0junk", 7)), "header: expected JSON in UTF-8, found a fault at byte 3");
  EXPECT_EQ(fault_of("\xEF\xBB\xBF{}"), "header: expected a JSON object, found none");
  EXPECT_EQ(fault_of("{\"__metadata__\":" + std::string(1000, '[') + std::string(1000, ']') + "}"),
            "header: expected at most 16 levels of nesting, found more");
  EXPECT_EQ(fault_of(std::string(5'000'000, '[')), "header: expected a JSON object, found a list");
  EXPECT_EQ(fault_of("{\"w\":{\"x\":" + std::string(5'000'000, '[')),
            "header: expected at most 16 levels of nesting, found more");
}

TEST(SafetensorsHeader, RefusesMembersOfTheWrongKind) {
  const std::string kind = "w: expected an object of dtype, shape and data_offsets, found ";
  EXPECT_EQ(fault_of("{\"w\":1}"), kind + "1");
  EXPECT_EQ(fault_of("{\"w\":[1]}"), kind + "a list");
  EXPECT_EQ(fault_of("{\"w\":\"x\"}"), kind + "\"x\"");
  EXPECT_EQ(fault_of("{\"w\":{}}"), "w: expected a member dtype, found none");
  EXPECT_EQ(fault_of("{\"w\":{\"dtype\":\"F32\"}}"), "w: expected a member shape, found none");
  EXPECT_EQ(fault_of("{\"w\":{\"dtype\":\"F32\",\"shape\":[]}}"), "w: expected a member data_offsets, found none");
  EXPECT_EQ(fault_of(one("\"F31\"", "[1]", "[0,4]")), "w: dtype: expected a name of the format, found \"F31\"");
  EXPECT_EQ(fault_of(one("\"f32\"", "[1]", "[0,4]")), "w: dtype: expected a name of the format, found \"f32\"");
  EXPECT_EQ(fault_of(one("32", "[1]", "[0,4]")), "w: dtype: expected a name of the format, found 32");
  EXPECT_EQ(fault_of(one("{}", "[1]", "[0,4]")), "w: dtype: expected a name of the format, found an object");
  EXPECT_EQ(fault_of(one("\"F32\"", "1", "[0,4]")),
            "w: shape: expected a list of whole sizes from 0 to 9223372036854775807, found 1");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "4")), "w: data_offsets: expected a list of two byte offsets, found 4");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[0]")),
            "w: data_offsets: expected a list of two byte offsets, found fewer");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[0,4,8]")),
            "w: data_offsets: expected a list of two byte offsets, found more");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[-4,0]")),
            "w: data_offsets: expected a list of two byte offsets, found -4");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[0,\"4\"]")),
            "w: data_offsets: expected a list of two byte offsets, found \"4\"");
}

TEST(SafetensorsHeader, F8RefusesShapesThatCannotBe) {
  const std::string sizes = "w: shape: expected a list of whole sizes from 0 to 9223372036854775807, found ";
  EXPECT_EQ(fault_of(one("\"F32\"", "[-1]", "[0,4]")), sizes + "-1");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1.0]", "[0,4]")), sizes + "1.0");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1e3]", "[0,4]")), sizes + "1e3");
  EXPECT_EQ(fault_of(one("\"F32\"", "[9223372036854775808]", "[0,4]")), sizes + "9223372036854775808");
  EXPECT_EQ(fault_of(one("\"F32\"", "[18446744073709551616]", "[0,4]")), sizes + "18446744073709551616");
  EXPECT_EQ(fault_of(one("\"F32\"", "[[1]]", "[0,4]")), sizes + "a list");
  EXPECT_EQ(fault_of(one("\"F32\"", "[true]", "[0,4]")), sizes + "true");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1,1,1,1,1,1]", "[0,4]")), "w: shape: expected at most 5 dimensions, found more");
  EXPECT_EQ(fault_of(one("\"F32\"", "[4294967296,4294967296]", "[0,0]")),
            "w: shape: expected fewer than 2^63 bits, found [4294967296, 4294967296] of F32");
  EXPECT_EQ(fault_of(one("\"U8\"", "[2305843009213693952]", "[0,0]")),
            "w: shape: expected fewer than 2^63 bits, found [2305843009213693952] of U8");
  // A zero hides nothing: the product of the others must fit too.
  EXPECT_EQ(fault_of(one("\"F32\"", "[0,4294967296,4294967296]", "[0,0]")),
            "w: shape: expected fewer than 2^63 bits, found [0, 4294967296, 4294967296] of F32");
  EXPECT_EQ(fault_of(one("\"F4\"", "[3]", "[0,2]")), "w: shape: expected whole bytes, found [3] of F4");
}

TEST(SafetensorsHeader, F8RefusesSpansThatDoNotFit) {
  EXPECT_EQ(fault_of(one("\"F32\"", "[2]", "[0,4]")), "w: data_offsets: expected 8 bytes for F32 [2], found 4");
  EXPECT_EQ(fault_of(one("\"F32\"", "[]", "[0,8]")), "w: data_offsets: expected 4 bytes for F32 [], found 8");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[4,0]")),
            "w: data_offsets: expected a span inside the file's 64 bytes of data, found [4, 0]");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[61,65]")),
            "w: data_offsets: expected a span inside the file's 64 bytes of data, found [61, 65]");
  EXPECT_EQ(fault_of(one("\"F32\"", "[1]", "[9223372036854775803,9223372036854775807]")),
            "w: data_offsets: expected a span inside the file's 64 bytes of data, found [9223372036854775803, "
            "9223372036854775807]");
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                     R"("b":{"dtype":"U8","shape":[8],"data_offsets":[7,15]}})"),
            "b: data_offsets: expected a span of its own, found an overlap with a");
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                     R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})"),
            "b: data_offsets: expected a span of its own, found an overlap with a");
}

TEST(SafetensorsHeader, RefusesDuplicates) {
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                     R"("a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})"),
            "a: expected every tensor once, found it twice");
  // Written in two ways, the same name.
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                     R"("\u0061":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})"),
            "a: expected every tensor once, found it twice");
  EXPECT_EQ(fault_of(R"({"a":{"dtype":"U8","shape":[1],"shape":[2],"data_offsets":[0,1]}})"),
            "a: expected shape once, found it twice");
}

TEST(SafetensorsHeader, KeepsMessagesToOneShortLine) {
  EXPECT_EQ(fault_of("{\"a\\nb\\u001b[31m\":1}"),
            "a\\x0ab\\x1b[31m: expected an object of dtype, shape and data_offsets, found 1");
  const std::string message =
      fault_of("{\"" + std::string(1'000'000, 'n') + "\":\"" + std::string(1'000'000, 'v') + "\"}");
  EXPECT_LT(message.size(), 500u);
  EXPECT_LT(fault_of(one("\"F32\"", "[" + std::string(1'000'000, '9') + "]", "[0,4]")).size(), 500u);
  // A cut never leaves half a character.
  EXPECT_EQ(find_invalid_utf8(printable(std::string(159, 'n') + "\xC3\xA4\xC3\xA4")), -1);
}

std::string index_fault(std::string_view text) {
  auto parsed = parse_safetensors_index(text);
  if (parsed.ok()) return "accepted";
  EXPECT_EQ(parsed.error().code, ErrorCode::bad_file);
  return parsed.error().message;
}

TEST(SafetensorsIndex, ReadsPairsByName) {
  auto parsed =
      parse_safetensors_index(R"({"metadata":{"total_size":1e9},"weight_map":{"b":"2.st","a":"1.st"},"x":[]})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(*parsed, (std::vector<std::pair<std::string, std::string>>{{"a", "1.st"}, {"b", "2.st"}}));
}

TEST(SafetensorsIndex, RefusesWhatIsNoIndex) {
  EXPECT_EQ(index_fault(""), "index: expected a JSON object, found none");
  EXPECT_EQ(index_fault("[]"), "index: expected a JSON object, found a list");
  EXPECT_EQ(index_fault("{}"), "index: expected tensors in weight_map, found none");
  EXPECT_EQ(index_fault(R"({"weight_map":{}})"), "index: expected tensors in weight_map, found none");
  EXPECT_EQ(index_fault(R"({"weight_map":"a.safetensors"})"),
            "index: expected an object weight_map, found \"a.safetensors\"");
  EXPECT_EQ(index_fault(R"({"weight_map":[]})"), "index: expected an object weight_map, found a list");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"f"},"weight_map":{"b":"f"}})"),
            "index: expected weight_map once, found it twice");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"f","a":"g"}})"), "index: a: expected every tensor once, found it twice");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"f"}} x)"), "index: expected JSON in UTF-8, found a fault at byte 26");
  EXPECT_EQ(index_fault(R"({"metadata":)" + std::string(1'000'000, '[')),
            "index: expected at most 16 levels of nesting, found more");
}

TEST(SafetensorsIndex, RefusesFilesOutsideTheFolder) {
  const std::string expected = "a: expected the base name of a file in the folder, found ";
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"../f"}})"), expected + "a path (\"../f\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"/etc/passwd"}})"), expected + "a path (\"/etc/passwd\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"x\\y"}})"), expected + "a path (\"x\\y\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":".."}})"), expected + "a way out of the folder (\"..\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"."}})"), expected + "a way out of the folder (\".\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":""}})"), expected + "an empty name (\"\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":"f\u0000g"}})"), expected + "a control character (\"f\\x00g\")");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":7}})"), expected + "7");
  EXPECT_EQ(index_fault(R"({"weight_map":{"a":{"b":"c"}}})"), expected + "an object");
}

// Any one-byte change of a sound file is either accepted with spans inside the file, or refused in one line.
TEST(SafetensorsHeader, SurvivesEveryFlippedBit) {
  const std::string sound = testing::safetensors_file(
      {{"a.weight", "U8", {4, 8}, std::string(32, 'w')}, {"a.weight_scale", "F8_E4M3", {4, 1}, "ssss"}});
  int accepted = 0, refused = 0;
  for (size_t at = 0; at < sound.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      std::string file = sound;
      file[at] = static_cast<char>(file[at] ^ (1 << bit));
      auto parsed = parse(file);
      ++(parsed.ok() ? accepted : refused);
      if (!parsed.ok()) {
        EXPECT_EQ(parsed.error().message.find('\n'), std::string::npos);
        continue;
      }
      for (const StoredTensor& tensor : parsed->tensors) {
        EXPECT_GE(tensor.begin, parsed->data_begin);
        EXPECT_LE(tensor.end, static_cast<int64_t>(file.size()));
      }
    }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace wp
