# cmake -DPAGE=page.html -DOUTPUT=page_data.cpp -P embed.cmake: the page as one string, each @FILE@ of it replaced by
# that file of the same folder, and the digests of its style and script that its Content-Security-Policy names.
get_filename_component(folder ${PAGE} DIRECTORY)
file(READ ${PAGE} page)
string(REGEX MATCHALL "@[a-z_]+\\.(css|js)@" names "${page}")
foreach(name ${names})
  string(REPLACE "@" "" file "${name}")
  file(READ ${folder}/${file} text)
  string(REPLACE "${name}" "${text}" page "${page}")
endforeach()

# wp_digest(OUT TAG): base64 of the SHA-256 of what stands between <TAG ...> and </TAG>.
function(wp_digest out tag)
  string(REGEX MATCH "<${tag}[^>]*>" open "${page}")
  string(FIND "${page}" "${open}" begin)
  string(LENGTH "${open}" length)
  math(EXPR begin "${begin} + ${length}")
  string(FIND "${page}" "</${tag}>" end)
  math(EXPR length "${end} - ${begin}")
  string(SUBSTRING "${page}" ${begin} ${length} text)
  string(SHA256 hex "${text}")
  set(alphabet "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
  set(base64 "")
  foreach(at RANGE 0 60 6)  # Three bytes, four letters; the last two bytes give three and a sign.
    string(SUBSTRING "${hex}00" ${at} 6 group)
    math(EXPR bits "0x${group}")
    foreach(shift 18 12 6 0)
      math(EXPR index "(${bits} >> ${shift}) & 63")
      string(SUBSTRING ${alphabet} ${index} 1 letter)
      string(APPEND base64 ${letter})
    endforeach()
  endforeach()
  string(SUBSTRING ${base64} 0 43 base64)
  set(${out} "${base64}=" PARENT_SCOPE)
endfunction()

wp_digest(style style)
wp_digest(script script)
if(page MATCHES "\\)PAGE\"")
  message(FATAL_ERROR "the page holds )PAGE\", which ends the string it becomes")
endif()
# Compilers limit the length of one literal; neighbours are joined. Cut between lines, never in a character.
set(literals "")
set(rest "${page}")
while(NOT rest STREQUAL "")
  string(LENGTH "${rest}" length)
  if(length GREATER 8000)
    string(SUBSTRING "${rest}" 0 8000 piece)
    string(FIND "${piece}" "\n" end REVERSE)
    math(EXPR length "${end} + 1")
  endif()
  string(SUBSTRING "${rest}" 0 ${length} piece)
  string(SUBSTRING "${rest}" ${length} -1 rest)
  string(APPEND literals "    R\"PAGE(${piece})PAGE\"\n")
endwhile()
file(WRITE ${OUTPUT} "// Made by web/embed.cmake.
#include \"serve/page.h\"

namespace wp {

const char* const kPageHtml =
${literals}    ;
const char* const kPageStyleDigest = \"sha256-${style}\";
const char* const kPageScriptDigest = \"sha256-${script}\";

}  // namespace wp
")
