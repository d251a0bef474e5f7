"""From numbers to tables: the servers, the record, and the targets."""

from statistics import median

from servers import MEANING, PEERS

PRODUCT, YARDSTICK = "countersign", "floor-sandboxed"


def merged(rounds):
    """The median over rounds of every number."""
    first = rounds[0]
    if isinstance(first, dict):
        return {name: merged([one[name] for one in rounds]) for name in first}
    if any(value is None for value in rounds):
        return None
    return round(median(rounds), 3)


def tables(document):
    parts = [server_table(document), record_table(document), web_table(document), targets_table(document)]
    return "\n\n".join(part for part in parts if part)


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


def number(value, digits=2):
    return "–" if value is None else f"{value:,.{digits}f}"


def megabytes(kilobytes):
    return number(None if kilobytes is None else kilobytes / 1024, 1)


def server_table(document):
    width = document["plan"]["in_flight"]
    head = ["server", "call p50 ms", "p90", "p99", f"calls/s, {width} in flight", "p99 then", "CPU ms/call",
            "cold start ms", "ping p50 ms", "idle PSS MB", "idle RSS MB", "processes"]
    rows, notes = [], []
    for name, entry in document["servers"].items():
        title = name + (f" {entry['version']}" if entry.get("version") else "")
        notes.append(f"- `{name}`: {MEANING[name]}")
        if "not_measured" in entry:
            rows.append([title, f"not measured: {entry['not_measured']}"] + [""] * (len(head) - 2))
            continue
        n = entry["median"]
        rows.append([
            title, number(n["call_ms"]["p50"]), number(n["call_ms"]["p90"]), number(n["call_ms"]["p99"]),
            number(n["parallel_calls_per_s"], 0), number(n["parallel_ms"]["p99"], 1),
            number(n["parallel_cpu_ms_per_call"]), number(n["cold_start_ms"]["p50"], 1),
            number(n["ping_ms"]["p50"]), megabytes(n["idle"]["pss_kb"]), megabytes(n["idle"]["rss_kb"]),
            number(n["idle"]["processes"], 0),
        ])
    return markdown(head, rows) + "\n\n" + "\n".join(notes)


def record_table(document):
    record = document.get("record")
    if not record:
        return ""
    if "not_measured" in record:
        return f"Record: not measured: {record['not_measured']}"
    def all_of(kind, measure):
        return [entry for entry in record[kind] if entry["measure"] == measure]
    def writers(entry):
        return f"{entry['callers']} at once" + (f", {entry['stores']} stores on one file" if entry["stores"] > 1 else "")
    bare = record["bare"]
    writes = [[writers(entry),
               number(entry["per_second"], 0), number(entry["p50_ms"]), number(entry["p99_ms"]),
               number(other["per_second"], 0)]
              for entry, other in zip(all_of("power", "append"), all_of("process", "append"))]
    writes += [["no store: one page, `fdatasync`", number(bare["flush_per_s"], 0), "", "", ""],
               ["no store: SQLite, one row per commit", number(bare["insert_per_s"], 0), "", "", ""]]
    sizes = [[f"{fill['rows']:,}", number(fill["rows_per_second"], 0), number(append["per_second"], 0),
              number(append["p50_ms"]), number(verify["rows_per_second"], 0), number(opened["p50_ms"])]
             for fill, append, verify, opened in zip(*(all_of("power", measure) for measure in
                                                       ("fill", "append at size", "verify", "open")))]
    sizes.append([f"no store: SQLite, {bare['batch']} rows per commit",
                  number(bare["insert_batched_rows_per_s"], 0), "", "", "", ""])
    return (markdown(["record: writers", "rows/s, power-safe", "p50 ms", "p99 ms", "rows/s, process-safe"], writes)
            + "\n\n"
            + markdown(["record: rows in it", "fill rows/s (500 per commit)", "writes/s by 8 callers", "p50 ms",
                        "verify rows/s", "open ms"], sizes))


def web_table(document):
    web = document.get("web")
    if not web:
        return ""
    if "not_measured" in web:
        return f"`serve`: not measured: {web['not_measured']}"
    rows = [["idle PSS MB / RSS MB", f"{megabytes(web['idle']['pss_kb'])} / {megabytes(web['idle']['rss_kb'])}"],
            ["start to `/healthz` ms", number(web["start_ms"], 1)]]
    if "list_not_measured" in web:
        rows.append(["`tools/list`", "not measured: " + web["list_not_measured"]])
        return markdown(["`serve`", ""], rows)
    head = ["over HTTP", "connections", "requests/s", "p50 ms", "p99 ms"]
    sides = [[WEB_MEANING[name], one["connections"], number(one["per_s"], 0), number(one["p50_ms"], 3), number(one["p99_ms"], 3)]
             for name, one in web["side"].items()]
    sessions = [[f"{one['sessions']:,}", megabytes(one["rss_kb"]), number(one["list"]["p50_ms"], 3), number(one["list_ratio"], 2),
                 number(one["call"]["p50_ms"], 3), number(one["call_ratio"], 2)] for one in web["growth"]]
    leak = web["leak"]
    spells = [[f"{(number_of + 1) * leak['calls'] // len(leak['spells']):,}", megabytes(one["rss_kb"]), one["descriptors"], one["threads"],
               one["processes"]] for number_of, one in enumerate(leak["spells"])]
    return "\n\n".join([
        markdown(["`serve`", ""], rows), markdown(head, sides),
        markdown(["idle sessions", "RSS MB", "`tools/list` p50 ms", "× one session", "`execute_process true` p50 ms", "× one session"],
                 sessions),
        markdown(["calls made so far", "RSS MB", "descriptors", "threads", "processes"], spells)])


WEB_MEANING = {
    "list": "`tools/list`",
    "echo": "bare axum echo",
    "echo as long": "bare axum echo, of a message as long as the list",
    "call": "`execute_process true`",
    "call alone": "`execute_process true`, one at a time",
    "sdk list": "rmcp hello: `tools/list`",
    "sdk call": "rmcp hello: starts `true`, nothing around it",
    "sdk call alone": "rmcp hello: starts `true`, one at a time",
}



# ---- targets ----

def targets_table(document):
    rows = [[one["target"], one["measured"], one["verdict"]] for one in targets(document)]
    return markdown(["target", "measured", "verdict"], rows)


def targets(document):
    """Ratios are taken within each round and their median is judged: rounds share the machine's mood."""
    found = []

    def add(text, value, limit, unit, at_most=True, digits=2):
        if value is None:
            found.append({"target": text, "measured": "–", "verdict": "not measured"})
            return
        met = value <= limit if at_most else value >= limit
        off = abs(value - limit) / limit * 100
        found.append({"target": text, "measured": f"{value:,.{digits}f} {unit}".strip(), "value": value, "limit": limit,
                      "met": met, "verdict": "met" if met else f"**missed by {off:.0f} %**"})

    peer = fastest_peer(document)
    add(f"call p50 below the fastest bare peer ({peer or 'none here'})", ratio(document, peer, "call_ms", "p50"), 1, "×")
    add(f"call p50 at most 1.5 × {YARDSTICK}", ratio(document, YARDSTICK, "call_ms", "p50"), 1.5, "×")
    add(f"calls/s in flight at least 80 % of {YARDSTICK}", scaled(ratio(document, YARDSTICK, "parallel_calls_per_s"), 100),
        80, "%", at_most=False, digits=0)
    product = document["servers"].get(PRODUCT, {}).get("median")
    add("cold start to `tools/list` at most 15 ms", product and product["cold_start_ms"]["p50"], 15, "ms", digits=1)
    add("idle memory, stdio, at most 15 MB", held(product), 15, "MB", digits=1)
    web = document.get("web") or {}
    add("idle memory, serve, at most 25 MB", held(web), 25, "MB", digits=1)
    add("`tools/list` over HTTP at least 70 % of a bare axum echo", scaled(web.get("list_ratio"), 100), 70, "%", at_most=False, digits=0)
    add("the same, beside an echo that answers as many bytes", scaled(web.get("list_as_long_ratio"), 100), 70, "%", at_most=False, digits=0)
    add("a write into the largest record at most 1.2 × one into the smallest", growth(document), 1.2, "×")
    add("cost per call flat to 10,000 sessions", session_growth(web), 1.2, "×")
    add("memory after the last spell of calls at most 1.05 × after the second", leak_growth(web), 1.05, "×")
    return found


def held(one):
    """Megabytes of the idle tree: PSS, or RSS, which is never less, where PSS may not be read."""
    idle = (one or {}).get("idle")
    return idle and scaled(idle["pss_kb"] if idle["pss_kb"] is not None else idle["rss_kb"], 1 / 1024)


def scaled(value, by):
    return None if value is None else value * by


def measured(document, name):
    return [one for one in document["servers"].get(name, {}).get("rounds", []) if one]


def ratio(document, other, *path):
    """Of the product to another server, round by round."""
    if other is None:
        return None
    found = []
    both = zip(document["servers"].get(PRODUCT, {}).get("rounds", []), document["servers"].get(other, {}).get("rounds", []))
    for mine, theirs in both:
        if mine and theirs:
            for step in path:
                mine, theirs = mine[step], theirs[step]
            found.append(mine / theirs)
    return median(found) if found else None


def fastest_peer(document):
    peers = [name for name in PEERS if measured(document, name)]
    return min(peers, key=lambda name: document["servers"][name]["median"]["call_ms"]["p50"], default=None)


def session_growth(web):
    """The worst of listing and calling, most sessions beside one."""
    steps = web.get("growth")
    if not steps:
        return None
    return max(steps[-1][what] for what in ("list_ratio", "call_ratio"))


def leak_growth(web):
    spells = (web.get("leak") or {}).get("spells")
    return spells[-1]["rss_kb"] / spells[1]["rss_kb"] if spells else None


def growth(document):
    record = document.get("record") or {}
    at_size = [entry for entry in record.get("power", []) if entry["measure"] == "append at size"]
    return at_size[-1]["p50_ms"] / at_size[0]["p50_ms"] if len(at_size) > 1 else None
