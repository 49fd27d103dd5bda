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
BUILD_PACKAGES := gcc make clang llvm bpftool libbpf-dev libelf-dev libdw-dev libdebuginfod-dev \
	liblzma-dev zlib1g-dev \
	libiberty-dev libpcre2-dev libzydis-dev libjson-c-dev libbsd-dev uthash-dev linux-libc-dev
CHECK_PACKAGES := libcmocka-dev bats perl procps python3 g++ golang-go redis-server redis-tools sqlite3 \
	binutils util-linux jq shellcheck clang-format libclang-rt-14-dev nginx \
	nodejs openjdk-17-jre-headless rustc ruby php-cli luajit postgresql musl-tools curl openssl bash \
	xz-utils debuginfod strace elfutils dwz libc6-dbg python3.11-dbg libgoogle-perftools4 \
	libtcmalloc-minimal4 libgoogle-perftools-dev libjemalloc2 libjemalloc-dev libmimalloc2.0 \
	libmimalloc-dev libunwind-dev lld runc busybox-static systemtap-sdt-dev
KERNEL_PACKAGES := qemu-system-x86 busybox-static cpio
BENCH_PACKAGES := google-perftools libgoogle-perftools4 libjemalloc2 libmimalloc2.0 heaptrack jq \
	procps redis-server redis-tools

# ------------------------------------------------------------------ flags

PKGS	 := libbpf libelf libdw zlib
CPPFLAGS += -Iinclude -Isrc -I$(OUTPUT) -D_GNU_SOURCE -DHEAPTAP_VERSION='"$(VERSION)"'
CFLAGS	 ?= -O2 -g
CFLAGS	 += -std=gnu17 -Wall -Wextra -Wno-unused-parameter -Wmissing-prototypes -Wshadow $(SANFLAGS)
ifeq ($(WERROR),1)
CFLAGS	 += -Werror
endif
LDLIBS	 += -lbpf -ldw -lelf -ldebuginfod -llzma -lz -lZydis -liberty -lpcre2-8 -ljson-c -lm -lpthread
BPFFLAGS := -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Wno-unused-parameter -Wno-unused-function -Werror \
	-D__TARGET_ARCH_x86 -D__bpf__ -Ivmlinux -Iinclude -Ibpf \
	-idirafter /usr/include/x86_64-linux-gnu

SRCS	:= $(wildcard src/*.c src/*/*.c)
OBJS	:= $(SRCS:src/%.c=$(OUTPUT)/obj/%.o)
LIBOBJS := $(filter-out $(OUTPUT)/obj/main.o,$(OBJS))
LIB	:= $(OUTPUT)/libheaptap.a

# ------------------------------------------------------------------ build

.PHONY: all
all: $(OUTPUT)/heaptap ## build everything a user needs (default)

$(OUTPUT)/%.bpf.o: bpf/%.bpf.c | $(OUTPUT)
	$(call msg,BPF,$@)
	$(Q)$(CLANG) $(BPFFLAGS) -MMD -MP -c $< -o $@

$(OUTPUT)/%.skel.h: $(OUTPUT)/%.bpf.o
	$(call msg,SKEL,$@)
	$(Q)$(BPFTOOL) gen object $(OUTPUT)/$*.linked.bpf.o $<
	$(Q)$(BPFTOOL) gen skeleton $(OUTPUT)/$*.linked.bpf.o name $*_bpf > $@

# The files that include the skeletons.
$(addprefix $(OUTPUT)/obj/,kernel.o kernel_epochs.o kernel_identify.o kernel_mappings.o kernel_samplers.o): \
	| $(OUTPUT)/heaptap.skel.h
$(OUTPUT)/obj/counter.o: | $(OUTPUT)/counter.skel.h

$(OUTPUT)/obj/%.o: src/%.c | $(OUTPUT)
	$(call msg,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -c $< -o $@

$(LIB): $(LIBOBJS)
	$(call msg,AR,$@)
	$(Q)rm -f $@ && $(AR) rcs $@ $^

# Whole, so that a name that two files define is an error.
$(OUTPUT)/heaptap: $(OUTPUT)/obj/main.o $(LIB)
	$(call msg,LINK,$@)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) $< -Wl,--whole-archive $(LIB) -Wl,--no-whole-archive $(LDLIBS) -o $@

$(OUTPUT):
	@mkdir -p $@

# ------------------------------------------------------------------ tests

UNIT_SRCS  := $(wildcard tests/unit/test_*.c)
UNIT_TESTS := $(UNIT_SRCS:tests/unit/%.c=$(OUTPUT)/unit/%)
FUZZ_SRCS  := $(wildcard tests/fuzz/fuzz_*.c)
REPLAYS	   := $(FUZZ_SRCS:tests/fuzz/fuzz_%.c=$(OUTPUT)/replay/%)
# The programs in tests/workloads; tests/workloads/variants.mk says how, and adds what is built otherwise.
ODD_WORKLOADS := prefixed api_jemalloc api_mimalloc api_tcmalloc told
WORKLOADS  := $(addprefix $(OUTPUT)/workloads/,$(filter-out $(ODD_WORKLOADS), \
	      $(basename $(notdir $(wildcard tests/workloads/*.c tests/workloads/*.cc)))))
# Frame pointers and no inlining: a workload's truth is by function.
WORKLOAD_FLAGS := -O1 -g -fno-omit-frame-pointer -fno-optimize-sibling-calls -fno-inline -pthread \
	-Wall -Wextra -Werror -D_GNU_SOURCE

$(OUTPUT)/unit/%: tests/unit/%.c $(LIB)
	$(call msg,TEST,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) -Ibpf -Itests/unit $(CFLAGS) -MMD -MP -MF $@.d $< $(LIB) $(LDLIBS) -lcmocka -o $@

# The corpus of every fuzzer, replayed by a plain main().
$(OUTPUT)/replay/%: tests/fuzz/fuzz_%.c tests/fuzz/driver.c $(LIB)
	$(call msg,REPLAY,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -Wno-missing-prototypes $^ $(LDLIBS) -o $@

# NAME.so.c is a library that workloads load.
$(OUTPUT)/workloads/%.so: tests/workloads/%.so.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 $(WORKLOAD_FLAGS) -fPIC -fno-builtin -shared -MMD -MP -MF $@.d $< -o $@

include tests/workloads/variants.mk

include tests/oracle/rules.mk

.PHONY: workloads
workloads: $(WORKLOADS)

.PHONY: check
check: deps-check $(if $(KERNELS),deps-kernels) ## install what is missing, build, run every test (root); KERNELS=1 also on older kernels
	$(Q)$(MAKE) --no-print-directory check-all

# One run of prove over everything, so that one summary line closes it.
.PHONY: check-all
check-all: all workloads oracles $(UNIT_TESTS) $(REPLAYS)
	$(Q)$(MAKE) --no-print-directory WERROR=1 CC=gcc OUTPUT=$(OUTPUT)/gcc all
	$(Q)$(MAKE) --no-print-directory WERROR=1 CC=clang OUTPUT=$(OUTPUT)/clang all
	$(Q)BUILD=$(OUTPUT) prove --timer --failures --comments --exec tests/run-test tests/lint/*.t tests/oracle/*.t $(UNIT_TESTS) $(REPLAYS) \
		$(wildcard tests/e2e/*.bats) $(if $(KERNELS),tests/kernels/run.bash)

.PHONY: check-unit
check-unit: $(UNIT_TESTS) $(REPLAYS) ## unit tests and fuzz corpora alone: no root, seconds
	$(Q)BUILD=$(OUTPUT) prove --timer --failures --comments --exec tests/run-test $(UNIT_TESTS) $(REPLAYS)

.PHONY: check-e2e
check-e2e: all workloads oracles ## end-to-end tests alone (root); E2E=name.bats picks one
	$(Q)BUILD=$(OUTPUT) prove --timer --failures --comments --exec tests/run-test $(if $(E2E),tests/e2e/$(E2E),tests/e2e/*.bats)

.PHONY: check-kernels
check-kernels: deps-kernels ## the main tests on Debian's 6.1 and 6.12 kernels under QEMU (root)
	$(Q)$(MAKE) --no-print-directory all workloads oracles
	$(Q)BUILD=$(OUTPUT) prove --timer --failures --comments --exec tests/run-test tests/kernels/run.bash

.PHONY: fuzz
fuzz: | $(OUTPUT) ## fuzz one parser with libFuzzer: make fuzz T=pprof SECONDS=60
	$(Q)$(MAKE) --no-print-directory CC=clang OUTPUT=$(OUTPUT)/fuzz SANFLAGS="-fsanitize=fuzzer-no-link,address,undefined" \
		$(OUTPUT)/fuzz/libheaptap.a
	$(Q)clang $(CPPFLAGS) -g -O1 -fsanitize=fuzzer,address,undefined tests/fuzz/fuzz_$(T).c \
		$(OUTPUT)/fuzz/libheaptap.a $(LDLIBS) -o $(OUTPUT)/fuzz/$(T)
	$(Q)mkdir -p $(OUTPUT)/fuzz/corpus-$(T)
	$(Q)$(OUTPUT)/fuzz/$(T) -max_total_time=$(or $(SECONDS),60) -rss_limit_mb=4096 \
		$(OUTPUT)/fuzz/corpus-$(T) tests/fuzz/corpus/$(T)

.PHONY: demo
demo: deps-demo ## install what is missing, build, profile a bundled program and show the result (root)
	$(Q)$(MAKE) --no-print-directory all $(OUTPUT)/workloads/demo
	$(Q)BUILD=$(OUTPUT) tests/demo.bash

.PHONY: bench
bench: deps-bench ## six benchmarks: a malloc+free pair beside rivals, by allocator, modes, sampler, unwinding, names (root)
	$(Q)$(MAKE) --no-print-directory all $(addprefix $(OUTPUT)/,bench/pair bench/floor bench/depth \
		bench/verified oracle/rows_size oracle/symbols)
	$(Q)BUILD=$(OUTPUT) tests/bench/bench.sh
	@echo
	$(Q)BUILD=$(OUTPUT) tests/bench/allocators.bash
	@echo
	$(Q)BUILD=$(OUTPUT) tests/bench/modes.bash
	@echo
	$(Q)BUILD=$(OUTPUT) tests/bench/sampler.bash
	@echo
	$(Q)BUILD=$(OUTPUT) tests/bench/unwind.bash
	@echo
	$(Q)BUILD=$(OUTPUT) tests/bench/symbols.bash

.PHONY: bench-sampler
bench-sampler: deps-bench ## what `record --mode sampler` costs: a loop under tcmalloc, and redis-server (root)
	$(call install_packages,redis-server redis-tools)
	$(Q)$(MAKE) --no-print-directory all $(OUTPUT)/bench/pair
	$(Q)BUILD=$(OUTPUT) tests/bench/sampler.bash

.PHONY: bench-bounds
bench-bounds: deps-bench ## what `record -a` takes itself on a busy machine, in ten minutes (root)
	$(Q)$(MAKE) --no-print-directory all $(OUTPUT)/bench/load
	$(Q)BUILD=$(OUTPUT) tests/bench/bounds.bash

$(OUTPUT)/bench/pair: tests/bench/pair.cc
	$(call msg,BENCH,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -O2 -g -std=gnu++17 -Wall -Wextra $< -pthread -o $@

$(OUTPUT)/bench/depth $(OUTPUT)/bench/load: $(OUTPUT)/bench/%: tests/bench/%.c
	$(call msg,BENCH,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -O1 -g -std=gnu17 -D_GNU_SOURCE -Wall -Wextra $< -o $@

$(OUTPUT)/bench/verified: tests/kernels/verified.c
	$(call msg,BENCH,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -std=gnu17 -D_GNU_SOURCE -Wall -Wextra $< -o $@

$(OUTPUT)/bench/floor.bpf.o: tests/bench/floor.bpf.c
	$(call msg,BPF,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPFFLAGS) -c $< -o $@

$(OUTPUT)/bench/floor: tests/bench/floor.c $(OUTPUT)/bench/floor.bpf.o
	$(call msg,BENCH,$@)
	$(Q)$(CC) -O2 -g -std=gnu17 -D_GNU_SOURCE -Wall -Wextra -DFLOOR_OBJECT='"$(abspath $(OUTPUT))/bench/floor.bpf.o"' \
		$< -lbpf -lelf -lz -o $@

# ------------------------------------------------------------------ maintenance

# Installs those of $(1) that are missing, and nothing else. Nothing is left behind: what root makes
# in the build folder is in the way of a user's `make`.
define install_packages
	@missing=; for p in $(1); do \
		dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; \
	done; \
	[ -z "$$missing" ] || { \
		echo "  DEPS    $$missing"; \
		[ "$$(id -u)" = 0 ] || { echo "make: these packages are missing; run make as root, with sudo" >&2; exit 1; }; \
		log=$$(mktemp) && trap 'rm -f "$$log"' EXIT && \
		apt-get install -y --no-install-recommends $$missing </dev/null >"$$log" 2>&1 || \
		{ apt-get update </dev/null >"$$log" 2>&1 && \
		  apt-get install -y --no-install-recommends $$missing </dev/null >>"$$log" 2>&1; } || \
		{ tail -n 20 "$$log" >&2; exit 1; }; \
	}
endef

.PHONY: deps deps-demo deps-check deps-kernels deps-bench
deps: ## install the Debian packages a build needs, if missing (root)
	$(call install_packages,$(BUILD_PACKAGES))

deps-demo:
	$(call install_packages,$(BUILD_PACKAGES) g++)

deps-check:
	$(call install_packages,$(BUILD_PACKAGES) $(CHECK_PACKAGES))

deps-kernels:
	$(call install_packages,$(BUILD_PACKAGES) $(KERNEL_PACKAGES) binutils procps util-linux)

deps-bench:
	$(call install_packages,$(BUILD_PACKAGES) $(BENCH_PACKAGES) g++)

FORMATTED := $(wildcard bpf/*.[ch] include/heaptap/*.h src/*.[ch] src/*/*.[ch] tests/*/*.[ch] tests/*/*.cc)

.PHONY: format
format: ## lay out all C code by .clang-format
	$(Q)clang-format -i $(FORMATTED)

.PHONY: format-check
format-check:
	$(Q)clang-format --dry-run --Werror $(FORMATTED)

.PHONY: install
install: all ## install the binary and its manual page below DESTDIR and PREFIX
	install -D -m 755 $(OUTPUT)/heaptap $(DESTDIR)$(PREFIX)/bin/heaptap
	install -D -m 644 docs/heaptap.8 $(DESTDIR)$(PREFIX)/share/man/man8/heaptap.8

.PHONY: clean
clean: ## remove everything that was built
	$(Q)rm -rf $(OUTPUT)

.PHONY: help
help: ## this list
	@awk -F ':[^#]*## ' '/^[a-z][a-z0-9-]*:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nwith any of them:\n'
	@printf '  %-14s %s\n' \
		V=1 'show the commands' \
		SAN=1 'build with sanitizers, into $(OUTPUT)-san' \
		WERROR=1 'warnings are errors' \
		OUTPUT=FOLDER 'build there instead of in build' \
		CC=clang 'another compiler' \
		PREFIX=/usr 'install there instead of below /usr/local'

-include $(shell find $(OUTPUT) -name '*.d' 2>/dev/null)
