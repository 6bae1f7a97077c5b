#include "text/jinja/value.h"

#include <fmt/format.h>

#include <cmath>

namespace wp::jinja {

bool Dict::encode(const Value& key, std::string& out) {
  switch (key.kind()) {
    case Kind::string: out = "s" + key.as_string(); return true;
    case Kind::boolean:
    case Kind::integer: out = fmt::format("i{}", key.as_integer()); return true;
    case Kind::real:
      if (key.as_real() == std::floor(key.as_real()) && std::fabs(key.as_real()) < 1e15)
        out = fmt::format("i{}", static_cast<int64_t>(key.as_real()));
      else out = fmt::format("r{}", key.as_real());
      return true;
    case Kind::none: out = "n"; return true;
    default: return false;
  }
}

size_t Dict::find_encoded(const std::string& key) const {
  const auto found = index_.find(key);
  return found == index_.end() ? items.size() : found->second;
}

const Value* Dict::find(const Value& key) const {
  std::string encoded;
  if (!encode(key, encoded)) return nullptr;
  const size_t at = find_encoded(encoded);
  return at == items.size() ? nullptr : &items[at].second;
}

const Value* Dict::find(std::string_view key) const {
  const size_t at = find_encoded("s" + std::string(key));
  return at == items.size() ? nullptr : &items[at].second;
}

bool Dict::set(const Value& key, Value value) {
  std::string encoded;
  if (!encode(key, encoded)) return false;
  const auto [place, is_new] = index_.emplace(std::move(encoded), items.size());
  if (is_new) items.emplace_back(key, std::move(value));
  else items[place->second].second = std::move(value);
  return true;
}

Value* Scope::find_here(int symbol) {
  for (auto& [name, value] : names)
    if (name == symbol) return &value;
  return nullptr;
}

const Value* Scope::find(int symbol) const {
  for (const Scope* scope = this; scope; scope = scope->parent)
    for (const auto& [name, value] : scope->names)
      if (name == symbol) return &value;
  return nullptr;
}

void Scope::set(int symbol, Value value) {
  if (Value* found = find_here(symbol)) *found = std::move(value);
  else names.emplace_back(symbol, std::move(value));
}

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined: return "undefined";
    case Kind::none: return "None";
    case Kind::boolean: return "bool";
    case Kind::integer: return "int";
    case Kind::real: return "float";
    case Kind::string: return "str";
    case Kind::list: return value.as_list().is_tuple ? "tuple" : "list";
    case Kind::dict: return "dict";
    case Kind::name_space: return "namespace";
    case Kind::loop: return "loop";
    case Kind::macro: return "macro";
    case Kind::function: return "function";
    case Kind::method: return "method";
  }
  return "";
}

}  // namespace wp::jinja
