# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# The independent judges and what they need. Not part of the product.

ORACLES := $(addprefix $(OUTPUT)/oracle/,live uret stacks rows_libdw rows_size symbols placements hits calls \
	signatures)

.PHONY: oracles
oracles: $(ORACLES)

$(OUTPUT)/oracle/live.bpf.o: tests/oracle/live.bpf.c | $(OUTPUT)
	$(call msg,BPF,$@)
	@mkdir -p $(@D)
	$(Q)$(CLANG) $(BPFFLAGS) -Itests/oracle -MMD -MP -MF $@.d -c $< -o $@

$(OUTPUT)/oracle/live.skel.h: $(OUTPUT)/oracle/live.bpf.o
	$(call msg,SKEL,$@)
	$(Q)$(BPFTOOL) gen object $(OUTPUT)/oracle/live.linked.bpf.o $<
	$(Q)$(BPFTOOL) gen skeleton $(OUTPUT)/oracle/live.linked.bpf.o name live_bpf > $@

$(OUTPUT)/oracle/live: tests/oracle/live.c $(OUTPUT)/oracle/live.skel.h $(LIB)
	$(call msg,ORACLE,$@)
	$(Q)$(CC) $(CPPFLAGS) -I$(OUTPUT)/oracle -Itests/oracle $(CFLAGS) -MMD -MP -MF $@.d $< $(LIB) $(LDLIBS) -o $@

$(OUTPUT)/oracle/uret: tests/oracle/uret.c
	$(call msg,ORACLE,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $< -o $@

# Other allocators are preloaded into it: no sanitizers.
$(OUTPUT)/oracle/calls: tests/oracle/calls.c
	$(call msg,ORACLE,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(filter-out $(SANFLAGS),$(CFLAGS)) -MMD -MP -MF $@.d $< -ldl -o $@

$(OUTPUT)/oracle/%: tests/oracle/%.c $(LIB)
	$(call msg,ORACLE,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CPPFLAGS) $(CFLAGS) -MMD -MP -MF $@.d $< $(LIB) $(LDLIBS) -o $@
