// Texts of items: conversations are shown as turns.

// Speaker and words of each turn of a conversation: JSON messages, or lines that begin with a speaker; null otherwise.
function turns(text) {
  if (/^\s*[[{]/.test(text)) {
    try {
      const found = JSON.parse(text);
      const messages = Array.isArray(found) ? found : found.messages || found.conversation || found.turns || [];
      const said = messages.map((one) => [one.role || one.author || one.speaker || one.from, one.content || one.text || one.value]);
      return said.length > 1 && said.every(([who, words]) => typeof who === "string" && typeof words === "string") ? said : null;
    } catch { return null; }
  }
  const parts = text.split(/^[ \t]*\**(user|assistant|system|human|bot|ai|agent|customer|speaker ?\w+|person ?\w+|[A-Z])\**[ \t]*:\**[ \t]*/gim);
  if (parts.length < 5 || parts[0].trim()) return null;
  return Array.from({ length: (parts.length - 1) / 2 }, (_, k) => [parts[2 * k + 1], parts[2 * k + 2].trim()]);
}

// A text as turns of a conversation, or as one paragraph; `format` makes an element of a text.
function fullText(text, format = null) {
  const said = turns(text);
  if (!said) return format ? format(text) : h("p", { class: "full" }, text);
  return h("dl", { class: "turns" }, ...said.flatMap(([who, words]) => [h("dt", {}, who), h("dd", {}, format ? format(words) : words)]));
}
