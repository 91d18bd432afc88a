"""The tables of README.md: a row per feature or fault, a column per SDK."""

from drive import ORDER
from faults import ROWS


class Table:
    def __init__(self, clients: list):
        self.clients = {c.sdk: c for c in clients}
        self.cells: dict[tuple, str] = {}
        self.features: list[str] = []

    def put(self, part: str, row: str, sdk: str, text: str) -> None:
        self.cells[part, row, sdk] = text.replace("|", "\\|")
        if part == "feature" and row not in self.features:
            self.features.append(row)

    def markdown(self) -> str:
        sdks = [s for s in ORDER if s in self.clients]
        lines = ["Versions: " + "; ".join(f"{s} {self.clients[s].version} on {self.clients[s].runtime}" for s in sdks) + ".", ""]
        if self.features:
            lines += self.rows("with llama.cpp behind the gateway", sdks, "feature", [(f, f) for f in self.features])
        faults = [(row.key, f"**{row.key}** {row.title}") for row in ROWS]
        for part, head in (("penstock", "what the engine does; through the gateway"), ("responses", "the same with /v1/responses, through the gateway"), ("direct", "what the engine does; without a gateway")):
            if any(part == p for p, _, _ in self.cells):
                lines += self.rows(head, sdks, part, [f for f in faults if any((part, f[0], s) in self.cells for s in sdks)])
        return "\n".join(lines)

    def rows(self, head: str, sdks: list[str], part: str, rows: list[tuple[str, str]]) -> list[str]:
        lines = [f"| {head} | " + " | ".join(sdks) + " |", "|---" * (len(sdks) + 1) + "|"]
        for key, title in rows:
            lines.append(f"| {title} | " + " | ".join(self.cells.get((part, key, s), "") for s in sdks) + " |")
        return lines + [""]
