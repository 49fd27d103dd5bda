#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Prints a profile's stacks by address, without any name: `BYTES FRAME;FRAME;...`, leaf first.

BYTES is the sample's label; a frame is FILE+0xOFFSET, or 0xADDRESS without a file, or the name of
a location that is no code. Reads the protobuf by itself: an independent reader.
"""
import gzip
import sys


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """(number, value) of each field: an int, or bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            raise ValueError("wire type %d" % (key & 7))
        yield key >> 3, value


def numbers(values):
    """A repeated integer field, packed or not."""
    for value in values:
        if isinstance(value, int):
            yield value
            continue
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            yield number


def message(data):
    """Field number to the list of its values."""
    result = {}
    for number, value in fields(data):
        result.setdefault(number, []).append(value)
    return result


def first(fields_of, number):
    return fields_of.get(number, [0])[0]


def main():
    profile = message(gzip.decompress(open(sys.argv[1], "rb").read()))
    strings = [text.decode() for text in profile[6]]
    mappings = {first(m, 1): m for m in map(message, profile.get(3, []))}
    functions = {first(f, 1): f for f in map(message, profile.get(5, []))}
    frames = {}
    for location in map(message, profile.get(4, [])):
        address = first(location, 3)
        mapping = mappings.get(first(location, 2))
        if mapping:
            name = strings[first(mapping, 5)].rsplit("/", 1)[-1]
            text = "%s+0x%x" % (name, address - first(mapping, 2) + first(mapping, 4))
        elif address:
            text = "0x%x" % address
        else:
            line = message(location[4][0])
            text = strings[first(functions[first(line, 1)], 2)].replace(" ", "_")
        frames[first(location, 1)] = text
    for sample in map(message, profile.get(2, [])):
        size = 0
        for label in map(message, sample.get(3, [])):
            if strings[first(label, 1)] == "bytes":
                size = first(label, 3)
        print(size, ";".join(frames[id] for id in numbers(sample.get(1, []))))


if __name__ == "__main__":
    main()
