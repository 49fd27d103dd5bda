# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# How workloads are built: once as a matter of course, and in workloads/VARIANT/ with another libc or
# with an allocator linked in. What needs a package that is not there is left out: its tests skip.

WORKLOAD_CC  = $(CC) -std=gnu17 $(WORKLOAD_FLAGS) -MMD -MP -MF $@.d
WORKLOAD_CXX = $(CXX) -std=gnu++17 $(WORKLOAD_FLAGS) -MMD -MP -MF $@.d

$(OUTPUT)/workloads/%: tests/workloads/%.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) $< -ldl -o $@

$(OUTPUT)/workloads/%: tests/workloads/%.cc
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CXX) $< -o $@

# Whole programs with another libc.
MATRIX := calls realloc failures threads churn

$(OUTPUT)/workloads/musl/%: tests/workloads/%.c
	$(call msg,MUSL,$@)
	@mkdir -p $(@D)
	$(Q)musl-gcc -std=gnu17 $(WORKLOAD_FLAGS) -MMD -MP -MF $@.d $< -o $@

$(OUTPUT)/workloads/musl-static/%: tests/workloads/%.c
	$(call msg,MUSL,$@)
	@mkdir -p $(@D)
	$(Q)musl-gcc -static -std=gnu17 $(WORKLOAD_FLAGS) -MMD -MP -MF $@.d $< -o $@

$(OUTPUT)/workloads/static/%: tests/workloads/%.c
	$(call msg,STATIC,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -static $< -o $@

$(OUTPUT)/workloads/static/%: tests/workloads/%.cc
	$(call msg,STATIC,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CXX) -static $< -o $@

# With an allocator in the program, which its dynamic symbols still name when it is stripped.
ARCHIVED = -Wl,--whole-archive -l:lib$(1).a -Wl,--no-whole-archive

$(OUTPUT)/workloads/tcmalloc/%.whole: tests/workloads/%.c
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -DWARM_UP $< $(call ARCHIVED,tcmalloc) -lunwind -lstdc++ -lm -o $@

$(OUTPUT)/workloads/tcmalloc/%.whole: tests/workloads/%.cc
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CXX) $< $(call ARCHIVED,tcmalloc) -lunwind -o $@

$(OUTPUT)/workloads/jemalloc/%.whole: tests/workloads/%.c
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) $< $(call ARCHIVED,jemalloc) -lstdc++ -lm -o $@

$(OUTPUT)/workloads/jemalloc/%.whole: tests/workloads/%.cc
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CXX) $< $(call ARCHIVED,jemalloc) -o $@

# Stripped but for the names of sites, which tests look for.
define strip_to_sites
	$(call msg,STRIP,$@)
	@mkdir -p $(@D)
	$(Q)objcopy --strip-all $$($< 100 | sed -n 's/^[a-z]*=\([^ ]*\) .*/-K \1/p') $< $@
endef

$(OUTPUT)/workloads/tcmalloc/%: $(OUTPUT)/workloads/tcmalloc/%.whole
	$(strip_to_sites)

$(OUTPUT)/workloads/jemalloc/%: $(OUTPUT)/workloads/jemalloc/%.whole
	$(strip_to_sites)

$(OUTPUT)/workloads/static-stripped/%: $(OUTPUT)/workloads/static/%
	$(strip_to_sites)

$(OUTPUT)/workloads/musl-static-stripped/%: $(OUTPUT)/workloads/musl-static/%
	$(strip_to_sites)

# By lld, which does not begin code at a page's begin in the file, and with an allocator in the program.
$(OUTPUT)/workloads/lld/%: tests/workloads/%.cc $(OUTPUT)/workloads/lib/own.o
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CXX) $< $(word 2,$^) -fuse-ld=lld -o $@

$(OUTPUT)/workloads/lib/own.o: tests/fixtures/own_allocator.c
	$(call msg,CC,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu17 -g -O2 -fno-builtin -Wall -Wextra -Werror -D_GNU_SOURCE -DPREFIX= -MMD -MP -MF $@.d -c $< -o $@

# Libraries: an allocator of its own, under several names, and what stands in front of one.
LIBRARY = $(CC) -std=gnu17 -g -fPIC -shared -fno-builtin -Wall -Wextra -Werror -D_GNU_SOURCE -Wl,-soname,$(@F) -MMD -MP -MF $@.d
LIBRARIES := own cut acme je _rjem forward_jump forward_call forward_header deepbind

define library_rule
$(OUTPUT)/workloads/lib/$(1).so: tests/fixtures/$(2).c
	$$(call msg,LIBRARY,$$@)
	@mkdir -p $$(@D)
	$$(Q)$$(LIBRARY) $(3) $$< -o $$@
endef
$(eval $(call library_rule,own,own_allocator,-O2 -DPREFIX=))
$(eval $(call library_rule,cut,own_allocator,-O2 -DPREFIX= -DCUT))
$(eval $(call library_rule,acme,own_allocator,-O2 -DPREFIX=acme_))
$(eval $(call library_rule,je,own_allocator,-O2 -DPREFIX=je_ -DJEMALLOC_API))
$(eval $(call library_rule,_rjem,own_allocator,-O2 -DPREFIX=_rjem_ -DJEMALLOC_API))
$(eval $(call library_rule,forward_jump,forwarder,-O2))
$(eval $(call library_rule,forward_call,forwarder,-O0))
$(eval $(call library_rule,forward_header,forwarder,-O2 -DHEADER))
$(eval $(call library_rule,deepbind,deepbind,-O2))

# libc's malloc and another one in a program: libc comes first in the order of libraries.
$(OUTPUT)/workloads/%/prefixed: tests/workloads/prefixed.c $(OUTPUT)/workloads/lib/%.so
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -DPREFIX=$*_ $(if $(findstring je,$*),-DJEMALLOC_API) $< \
		$(OUTPUT)/workloads/lib/$*.so -Wl,-rpath,'$$ORIGIN/../lib' -o $@

$(OUTPUT)/workloads/mi/prefixed: tests/workloads/prefixed.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -DPREFIX=mi_ $< -Wl,--no-as-needed -lc -lmimalloc -o $@

$(OUTPUT)/workloads/tc/prefixed: tests/workloads/prefixed.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -DPREFIX=tc_ $< -Wl,--no-as-needed -lc -ltcmalloc_minimal -o $@

# The allocators' own functions.
$(OUTPUT)/workloads/api_jemalloc: tests/workloads/api_jemalloc.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) $< -ljemalloc -o $@

$(OUTPUT)/workloads/api_mimalloc: tests/workloads/api_mimalloc.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) $< -lmimalloc -o $@

$(OUTPUT)/workloads/api_tcmalloc: tests/workloads/api_tcmalloc.cc
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CXX) $< -ltcmalloc -o $@

# USDT probes, told of always, or while somebody listens.
$(OUTPUT)/workloads/told: tests/workloads/told.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) $< -o $@

$(OUTPUT)/workloads/semaphores/told: tests/workloads/told.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -DSEMAPHORES $< -o $@

# Linked with an allocator, as most programs are that have it.
$(OUTPUT)/workloads/linked/%: tests/workloads/%.c
	$(call msg,WORKLOAD,$@)
	@mkdir -p $(@D)
	$(Q)$(WORKLOAD_CC) -DWARM_UP $< -Wl,--no-as-needed -ltcmalloc -o $@

VARIANTS := $(LIBRARIES:%=lib/%.so) lld/cxx $(MATRIX:%=static/%) static/cxx static-stripped/calls \
	acme/prefixed je/prefixed _rjem/prefixed
ifneq ($(shell command -v musl-gcc),)
VARIANTS += $(MATRIX:%=musl/%) $(MATRIX:%=musl-static/%) musl-static-stripped/calls
endif
ifneq ($(wildcard /usr/include/gperftools/tcmalloc.h),)
VARIANTS += $(MATRIX:%=tcmalloc/%) tcmalloc/cxx tc/prefixed api_tcmalloc linked/sites \
	linked/countdown linked/idle tcmalloc/sites.whole
endif
ifneq ($(wildcard /usr/include/$(shell $(CC) -print-multiarch)/sys/sdt.h /usr/include/sys/sdt.h),)
VARIANTS += told semaphores/told
endif
ifneq ($(wildcard /usr/include/jemalloc/jemalloc.h),)
VARIANTS += $(MATRIX:%=jemalloc/%) jemalloc/cxx api_jemalloc \
	$(patsubst %,jemalloc/%.whole,sites idle calls realloc failures threads api_jemalloc cxx)
endif
ifneq ($(wildcard /usr/include/mimalloc.h),)
VARIANTS += mi/prefixed api_mimalloc
endif
WORKLOADS += $(addprefix $(OUTPUT)/workloads/,$(VARIANTS))
