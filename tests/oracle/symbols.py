#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Names, inlined calls, files and lines against eu-addr2line, and where that is known to differ
against llvm-symbolizer.

Usage: symbols.py DRIVER COUNT SEED FILE...: COUNT call sites of each file. Prints a line per file
and every difference that no rule below explains; exit status 1 if there is one.

A rule has a name and says when it applies. Where it needs a second opinion it asks
llvm-symbolizer, so that a fault of our own that looks like eu-addr2line's is found.
"""
import collections
import os
import re
import subprocess
import sys

SHOWN = 5


class Frame(collections.namedtuple("Frame", "name path line")):
    """A function at an address; frames come innermost first."""


def run(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False,
                          errors="replace")
    return done.stdout


def read_ours(driver, path, sites):
    text = "".join(f"{path} {offset}\n" for offset, _ in sites)
    records, display = [], []
    for line in run([driver, "names"], text).splitlines():
        if line.startswith(">"):
            records.append([])
            display.append([])
            continue
        name, raw, source, number = line.split("\t")
        records[-1].append(Frame(raw if raw != "??" else "", source, int(number)))
        display[-1].append(name)
    return records, display


def read_eu(path, sites, demangle):
    """eu-addr2line's lines per address: the address, then a name and a place in turns."""
    options = ["-C"] if demangle else []
    text = "".join(address + "\n" for _, address in sites)
    records, name = [], None
    for line in run(["eu-addr2line", "-a", "-f", "-i", *options, "-e", path], text).splitlines():
        if re.fullmatch(r"0x[0-9a-f]{16}", line):
            records.append([])
            name = None
        elif name is None:
            # "leaf inlined at FILE:LINE:COLUMN in OUTER"
            name = re.sub(r" inlined at .*? in .*$", "", line)
        else:
            source, number = re.fullmatch(r"(.*?):(\d+)(?::\d+)?", line).groups()
            records[-1].append(Frame(name if name != "??" else "",
                                     source if source != "??" else "", int(number)))
            name = None
    return [[] if r == [Frame("", "", 0)] else r for r in records]


def debug_file(path):
    """llvm-symbolizer does not search by build-id."""
    notes = run(["readelf", "-nW", path], "")
    match = re.search(r"Build ID: (..)(\w+)", notes)
    found = f"/usr/lib/debug/.build-id/{match[1]}/{match[2]}.debug" if match else ""
    return found if os.path.exists(found) else path


def read_llvm(path, sites):
    text = "".join(address + "\n" for _, address in sites)
    command = ["llvm-symbolizer", f"--obj={debug_file(path)}", "-f=linkage", "-i",
               "--no-demangle", "--output-style=LLVM"]
    records = []
    for record in run(command, text).strip("\n").split("\n\n"):
        lines = record.split("\n")
        frames = []
        for name, place in zip(lines[::2], lines[1::2]):
            source, number, _ = re.fullmatch(r"(.*?):(\d+):(\d+)", place).groups()
            frames.append(Frame(name if name != "??" else "",
                                source if source != "??" else "", int(number)))
        records.append([] if frames == [Frame("", "", 0)] else frames)
    return records


def plain_path(path):
    """A path without what judges add: a relative compilation directory joined with itself (DWARF 5
    lists it as directory 0, to which the others are relative), and . and .. parts."""
    path = re.sub(r"^(\./[^/]+|[^/.][^/]*)/\1/", r"\1/", path)
    return os.path.normpath(path) if path else ""


def plain_name(name):
    """A symbol without version and compiler's suffixes, which DWARF does not have."""
    name = name.split("@")[0]
    return re.sub(r"\.(lto_priv|cold|isra|part|constprop|llvm|localalias)\b(\.\d+)*", "", name)


def places(frames):
    return [(plain_path(f.path), f.line) for f in frames]


def names(frames):
    return [plain_name(f.name) for f in frames]


def same(a, b):
    return places(a) == places(b) and names(a) == names(b)


def aliases(path):
    """Symbols by address: names of one address are equally right."""
    table = collections.defaultdict(set)
    for options in (["-DW"], ["-W"]):
        target = debug_file(path) if options == ["-W"] else path
        for line in run(["nm", *options, target], "").splitlines():
            fields = line.split()
            if len(fields) >= 3 and fields[-2] in "tTwWiIuV":
                table[int(fields[0], 16)].add(plain_name(fields[-1]))
    groups = {}
    for members in table.values():
        for member in members:
            groups.setdefault(member, set()).update(members)
    return groups


def data_symbols(path):
    """Names of data, which eu-addr2line gives to what looks like a call in the midst of it."""
    return {line.split()[-1].split("@")[0] for line in run(["readelf", "-sW", path], "").splitlines()
            if " OBJECT " in line or " NOTYPE " in line}


def plt_stubs(path):
    """Addresses of stubs and their names by objdump."""
    text = run(["objdump", "-d", "-j", ".plt", "-j", ".plt.sec", "-j", ".plt.got", path], "")
    return {int(address, 16): name
            for address, name in re.findall(r"^([0-9a-f]+) <(.*)>:$", text, re.M)}


def is_alias(groups, ours, theirs):
    """The outermost names are of one address; the rest is equal."""
    if not ours or len(ours) != len(theirs) or names(ours)[:-1] != names(theirs)[:-1]:
        return False
    return plain_name(theirs[-1].name) in groups.get(plain_name(ours[-1].name), ())


def is_stub(stubs, address, ours):
    """Stubs have 16 bytes, or 8, each at a multiple."""
    starts = [int(address, 16) & ~15, int(address, 16) & ~7]
    return len(ours) == 1 and any(plain_name(stubs.get(s, "")) == plain_name(ours[0].name)
                                  for s in starts)


def explain(address, ours, eu, llvm, facts):
    """The rule for a difference to eu-addr2line, or None."""
    groups, data, stubs = facts
    if not eu and is_stub(stubs, address, ours):
        return "PLT stub: objdump agrees with us"
    if not ours and len(eu) == 1 and eu[0].name in data:
        return "no function: eu-addr2line names data and labels"
    if same(ours, eu):
        return "compiler's suffix or doubled directory"
    if names(ours) == names(eu) == names(llvm) and any(f.line for f in eu) and \
            not any(f.line for f in [*ours, *llvm]):
        return "no lines here, as llvm-symbolizer says; eu-addr2line takes a neighbour's"
    if is_alias(groups, ours, eu) and places(ours) == places(eu):
        return "alias: another symbol of the same address"
    if same(ours, llvm):
        if all(not f.line for f in eu):
            return "no .debug_aranges for eu-addr2line; llvm-symbolizer agrees with us"
        if len(eu) < len(ours):
            return "eu-addr2line finds no inlined calls here; llvm-symbolizer agrees with us"
        return "llvm-symbolizer agrees with us"
    # llvm-symbolizer takes the outermost name from the symbol table, an alias or a file's name.
    if ours and len(ours) == len(llvm) and places(ours) == places(llvm) and \
            names(ours)[:-1] == names(llvm)[:-1] and eu and \
            plain_name(eu[-1].name) == plain_name(ours[-1].name):
        return "eu-addr2line finds no inlined calls here; llvm-symbolizer agrees but for its alias"
    if is_alias(groups, ours, llvm) and places(ours) == places(llvm):
        return "llvm-symbolizer agrees with us but for an alias"
    return None


def check_display(raw_eu, eu, ours, shown):
    """Demangled names, where the raw ones are the same. Suffixes are dropped in ours."""
    wrong = 0
    for raw, theirs, frames, display in zip(raw_eu, eu, ours, shown):
        if [f.name for f in raw] != [f.name for f in frames]:
            continue
        for frame, other, name in zip(frames, theirs, display):
            if not frame.name.startswith("_Z") or re.search(r"17h[0-9a-f]{16}E", frame.name):
                continue  # C, and Rust, of which eu-addr2line knows nothing
            if plain_name(frame.name) == frame.name and other.name != name:
                wrong += 1
                if wrong <= SHOWN:
                    print(f"# demangled: {frame.name}\n#   ours   {name}\n#   theirs {other.name}")
    return wrong


def judge(driver, path, count, seed):
    sites = [line.split() for line in run([driver, "sites", path, str(count), str(seed)],
                                          "").splitlines()]
    ours, display = read_ours(driver, path, sites)
    eu = read_eu(path, sites, False)
    llvm, facts = None, None
    rules = collections.Counter()
    wrong = 0
    if not sites or len(ours) != len(sites) or len(eu) != len(sites):
        print(f"# {path}: {len(sites)} sites, {len(ours)} by us, {len(eu)} by eu-addr2line")
        return 1, len(sites)
    for i, (offset, address) in enumerate(sites):
        if ours[i] == eu[i]:
            continue
        if llvm is None:
            llvm = read_llvm(path, sites)
            facts = aliases(path), data_symbols(path), plt_stubs(path)
        rule = explain(address, ours[i], eu[i], llvm[i], facts)
        rules[rule] += 1
        if rule is None:
            wrong += 1
            if wrong <= SHOWN:
                print(f"# {path} {address} (offset {offset})\n#   ours {ours[i]}\n"
                      f"#   eu   {eu[i]}\n#   llvm {llvm[i]}")
    if any(frame.name.startswith("_Z") for frames in ours for frame in frames):
        wrong += check_display(eu, read_eu(path, sites, True), ours, display)
    inlined = sum(len(frames) > 1 for frames in ours)
    named = sum(bool(frames) for frames in ours)
    print(f"# {path}: sites={len(sites)} named={named} inlined={inlined} "
          f"equal={len(sites) - sum(rules.values())} unexplained={wrong}")
    for rule, number in rules.most_common():
        print(f"#   {number:6} {rule}")
    return wrong, len(sites)


def main():
    driver, count, seed, paths = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    wrong = total = 0
    for path in paths:
        bad, sites = judge(driver, path, count, seed)
        wrong += bad
        total += sites
    print(f"# sites={total} unexplained={wrong}")
    return 1 if wrong else 0


sys.exit(main())
