# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# heaptap: one Makefile. `make help` lists what it does.

OUTPUT	?= build
PREFIX	?= /usr/local
DESTDIR	?=
CC	?= gcc
CLANG	?= clang
BPFTOOL	?= $(firstword $(wildcard /usr/sbin/bpftool /sbin/bpftool) bpftool)
VERSION	:= 0.1.0

# SAN=1 builds with sanitizers, into a folder of its own.
ifeq ($(SAN),1)
override OUTPUT := $(OUTPUT)-san
SANFLAGS := -fsanitize=address,undefined -fno-sanitize-recover=undefined
endif

ifeq ($(V),1)
Q :=
msg =
else
Q := @
msg = @printf '  %-8s %s\n' "$(1)" "$(2)";
endif

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

# ------------------------------------------------------------------ packages

# What a build needs, what the tests need on top, and the rivals of the benchmark.
BUILD_PACKAGES := gcc make clang llvm bpftool libbpf-dev libelf-dev libdw-dev zlib1g-dev \
	libiberty-dev libzydis-dev uthash-dev linux-libc-dev
CHECK_PACKAGES := libcmocka-dev bats perl procps python3 g++ golang-go redis-server redis-tools sqlite3 \
	binutils util-linux jq shellcheck clang-format libclang-rt-14-dev nginx
BENCH_PACKAGES := google-perftools libgoogle-perftools4 libjemalloc2 heaptrack

# ------------------------------------------------------------------ flags

PKGS	 := libbpf libelf libdw zlib
CPPFLAGS += -Iinclude -Isrc -I$(OUTPUT) -D_GNU_SOURCE -DHEAPTAP_VERSION='"$(VERSION)"'
CFLAGS	 ?= -O2 -g
CFLAGS	 += -std=gnu17 -Wall -Wextra -Wno-unused-parameter -Wmissing-prototypes -Wshadow $(SANFLAGS)
ifeq ($(WERROR),1)
CFLAGS	 += -Werror
endif
LDLIBS	 += -lbpf -ldw -lelf -lz -lZydis -liberty -lm
BPFFLAGS := -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-unused-function -Werror \
	-D__TARGET_ARCH_x86 -D__bpf__ -Ivmlinux -Iinclude -Ibpf \
	-idirafter /usr/include/x86_64-linux-gnu

SRCS	:= $(wildcard src/*.c src/*/*.c)
OBJS	:= $(SRCS:src/%.c=$(OUTPUT)/obj/%.o)
LIBOBJS := $(filter-out $(OUTPUT)/obj/main.o,$(OBJS))
LIB	:= $(OUTPUT)/libheaptap.a
SKEL	:= $(OUTPUT)/heaptap.skel.h

# ------------------------------------------------------------------ build

.PHONY: all
all: $(OUTPUT)/heaptap ## build everything a user needs (default)

$(OUTPUT)/heaptap.bpf.o: bpf/heaptap.bpf.c | $(OUTPUT)
	$(call msg,BPF,$@)
	$(Q)$(CLANG) $(BPFFLAGS) -MMD -MP -c $< -o $@

$(SKEL): $(OUTPUT)/heaptap.bpf.o
	$(call msg,SKEL,$@)
	$(Q)$(BPFTOOL) gen object $(OUTPUT)/heaptap.linked.bpf.o $<
	$(Q)$(BPFTOOL) gen skeleton $(OUTPUT)/heaptap.linked.bpf.o name heaptap_bpf > $@

# The files that include the skeleton.
$(OUTPUT)/obj/session.o $(OUTPUT)/obj/probe/attach.o $(OUTPUT)/obj/kernel.o: | $(SKEL)

$(OUTPUT)/obj/%.o: src/%.c | $(OUTPUT)
	$(call msg,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIBOBJS)
	$(call msg,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(OUTPUT)/heaptap: $(OUTPUT)/obj/main.o $(LIB)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $^ $(LDLIBS) -o $@

$(OUTPUT):
	@mkdir -p $@

# ------------------------------------------------------------------ tests

UNIT_SRCS  := $(wildcard tests/unit/test_*.c)
UNIT_TESTS := $(UNIT_SRCS:tests/unit/%.c=$(OUTPUT)/unit/%)

$(OUTPUT)/unit/%: tests/unit/%.c $(LIB)
	$(call msg,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Ibpf -Itests/unit $(CFLAGS) -MMD -MP $< $(LIB) $(LDLIBS) -lcmocka -o $@

.PHONY: check-unit
check-unit: $(UNIT_TESTS) ## unit tests alone: no root, seconds
	@CMOCKA_MESSAGE_OUTPUT=TAP prove --exec '' $(UNIT_TESTS)

-include $(shell find $(OUTPUT) -name '*.d' 2>/dev/null)
