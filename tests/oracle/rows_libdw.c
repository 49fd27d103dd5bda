/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The unwind rows against an independent reader of the same bytes, elfutils' libdw.
 *
 * Usage: rows_libdw [--rows] FILE... . For every file it asks libdw for the rule at the last byte
 * of every possible call, and compares it with the full table and with the one for call sites.
 * Then it walks libdw's own rows, from each function's start to its end, against the full table.
 * Differences at call sites are printed and give exit status 1; those of other rows are counted,
 * and printed with --rows. What libdw cannot answer is counted by its reason.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <dwarf.h>
#include <elfutils/libdw.h>

#include "elf/callsites.h"
#include "elf/cfi.h"
#include "elf/symtab.h"
#include "unwind/rows.h"

#define PRINTED_PER_FILE 20
#define MAX_REASONS	 32

enum {
	REG_BP = 6,
	REG_SP = 7,
	REG_RA = 16,
};

struct reason {
	char text[120];
	size_t count;
};

struct totals {
	size_t files;
	size_t no_table;
	size_t rows;
	size_t callsites;
	size_t differing;
	size_t differing_rows;
	size_t unanswered_rows;
	size_t synthesized;
	size_t kinds[CFA_KINDS];
	struct reason reasons[MAX_REASONS];
	size_t reason_count;
};

/* libdw's answer. */
struct answer {
	struct unwind_rule rule;
	uint64_t start;
	uint64_t end;
	const char *unanswered; /* why there is no rule */
};

struct judge {
	struct totals *totals;
	const char *path;
	bool verbose;
	struct image *image;
	struct symtab *symtab;
	struct code code;
	struct unwind_rows *all;
	struct unwind_rows *few;
	struct callsites callsites;
	struct cfi *cfi; /* NULL: nothing is described */
	Dwarf_CFI *eh;
	Dwarf_CFI *debug;
	size_t printed;
};

static void count_reason(struct totals *totals, const char *text)
{
	size_t i = 0;

	while (i < totals->reason_count && strcmp(totals->reasons[i].text, text))
		i++;
	if (i == MAX_REASONS)
		return;
	if (i == totals->reason_count)
		snprintf(totals->reasons[totals->reason_count++].text,
			 sizeof(totals->reasons[0].text), "%s", text);
	totals->reasons[i].count++;
}

static const char *rule_text(const struct unwind_rule *rule, char *text, size_t size)
{
	static const char *const cfa[CFA_KINDS] = {"gap",   "unsupported", "end", "sp",	   "bp",
						   "*(bp)", "*(sp)",	   "plt", "signal"};
	static const char *const bp[BP_KINDS] = {"same", "*cfa", "*bp"};

	snprintf(text, size, "cfa %s%+d%+d bp %s%+d", cfa[rule->cfa_kind], rule->cfa_offset,
		 rule->cfa_extra, bp[rule->bp_kind], rule->bp_offset);
	return text;
}

static bool fits_s32(Dwarf_Word n)
{
	return (int64_t)n == (int32_t)n;
}

/* reg + offset, as libdw says it: one DW_OP_bregN, or DW_OP_bregx. */
static bool parse_base(const Dwarf_Op *op, unsigned int *reg, int64_t *offset)
{
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31) {
		*reg = op->atom - DW_OP_breg0;
		*offset = (int64_t)op->number;
		return true;
	}
	if (op->atom == DW_OP_bregx) {
		*reg = (unsigned int)op->number;
		*offset = (int64_t)op->number2;
		return true;
	}
	return false;
}

/* The threshold of the PLT's expression, or 0. */
static int match_plt(const Dwarf_Op *ops, size_t count)
{
	static const uint8_t atoms[] = {DW_OP_breg7, DW_OP_breg16, DW_OP_lit15,
					DW_OP_and,   DW_OP_lit11,  DW_OP_ge,
					DW_OP_lit3,  DW_OP_shl,	   DW_OP_plus};

	if (count != ARRAY_SIZE(atoms))
		return 0;
	for (size_t i = 0; i < count; i++)
		if (ops[i].atom != atoms[i] && !(i == 4 && ops[i].atom == DW_OP_lit10))
			return 0;
	return ops[4].atom - DW_OP_lit0;
}

static bool parse_cfa(const Dwarf_Op *ops, size_t count, struct unwind_rule *rule)
{
	unsigned int reg;
	int64_t offset;
	int threshold = match_plt(ops, count);

	if (threshold) {
		*rule = (struct unwind_rule){
			.cfa_kind = CFA_PLT, .cfa_offset = 8, .cfa_extra = threshold};
		return true;
	}
	if (!count || !parse_base(&ops[0], &reg, &offset) || !fits_s32(offset) ||
	    (reg != REG_SP && reg != REG_BP))
		return false;
	rule->cfa_offset = (int32_t)offset;
	if (count == 1) {
		rule->cfa_kind = reg == REG_SP ? CFA_SP : CFA_BP;
		return true;
	}
	if (ops[1].atom != DW_OP_deref || count > 3)
		return false;
	rule->cfa_kind = reg == REG_SP ? CFA_DEREF_SP : CFA_DEREF_BP;
	if (count == 3) {
		if (ops[2].atom != DW_OP_plus_uconst || reg != REG_SP || !fits_s32(ops[2].number))
			return false;
		rule->cfa_extra = (int32_t)ops[2].number;
	}
	return true;
}

enum place { PLACE_SAME, PLACE_UNDEFINED, PLACE_CFA, PLACE_BP, PLACE_OTHER, PLACE_FAILED };

/* Where a register is saved. */
static enum place parse_register(Dwarf_Frame *frame, int regno, const struct unwind_rule *rule,
				 int64_t *offset)
{
	Dwarf_Op memory[3], *ops;
	unsigned int reg;
	size_t count;

	*offset = 0;
	if (dwarf_frame_register(frame, regno, memory, &ops, &count))
		return PLACE_FAILED;
	if (!count)
		return ops ? PLACE_UNDEFINED : PLACE_SAME;
	if (ops[count - 1].atom == DW_OP_stack_value)
		return PLACE_OTHER;
	/* An expression begins with the CFA on its stack, used or not. */
	if (ops[0].atom == DW_OP_call_frame_cfa) {
		if (count == 1)
			return PLACE_CFA;
		if (count == 2 && ops[1].atom == DW_OP_plus_uconst) {
			*offset = (int64_t)ops[1].number;
			return PLACE_CFA;
		}
		ops++;
		count--;
	}
	if (count != 1 || !parse_base(&ops[0], &reg, offset))
		return PLACE_OTHER;
	/* What hangs on the CFA's own register hangs on the CFA. */
	if ((reg == REG_BP && rule->cfa_kind == CFA_BP) ||
	    (reg == REG_SP && rule->cfa_kind == CFA_SP)) {
		*offset -= rule->cfa_offset;
		return PLACE_CFA;
	}
	return reg == REG_BP ? PLACE_BP : PLACE_OTHER;
}

static struct unwind_rule rule_of(Dwarf_Frame *frame, bool signal, const char **unanswered)
{
	const struct unwind_rule unsupported = {.cfa_kind = CFA_UNSUPPORTED};
	struct unwind_rule rule = {};
	int64_t offset;
	Dwarf_Op *ops;
	size_t count;
	enum place ra, bp;
	bool cfa_known;

	if (dwarf_frame_cfa(frame, &ops, &count)) {
		*unanswered = dwarf_errmsg(-1);
		return unsupported;
	}
	cfa_known = parse_cfa(ops, count, &rule);
	if (signal && count == 2 && ops[0].atom == DW_OP_breg7 && ops[0].number == 160 &&
	    ops[1].atom == DW_OP_deref)
		return (struct unwind_rule){.cfa_kind = CFA_SIGNAL};
	ra = parse_register(frame, REG_RA, &rule, &offset);
	if (ra == PLACE_UNDEFINED)
		return (struct unwind_rule){.cfa_kind = CFA_END};
	if (ra == PLACE_FAILED)
		*unanswered = dwarf_errmsg(-1);
	if (!cfa_known || ra != PLACE_CFA || offset != -8)
		return unsupported;
	bp = parse_register(frame, REG_BP, &rule, &offset);
	if (bp == PLACE_FAILED)
		*unanswered = dwarf_errmsg(-1);
	if (bp == PLACE_OTHER || bp == PLACE_FAILED || !fits_s32(offset))
		return unsupported;
	if (bp == PLACE_CFA || bp == PLACE_BP) {
		rule.bp_kind = bp == PLACE_CFA ? BP_CFA : BP_DEREF_BP;
		rule.bp_offset = (int32_t)offset;
	}
	return rule;
}

static struct answer ask(const struct judge *judge, uint64_t vaddr)
{
	struct answer answer = {.start = vaddr, .end = vaddr + 1};
	Dwarf_Frame *frame = NULL;
	Dwarf_Addr start, end;
	bool signal;

	/* dwarf_getcfi_elf() fails where there is no table at all. */
	if (!judge->eh && !judge->debug)
		return answer;
	if ((!judge->eh || dwarf_cfi_addrframe(judge->eh, vaddr, &frame)) &&
	    (!judge->debug || dwarf_cfi_addrframe(judge->debug, vaddr, &frame))) {
		int error = dwarf_errno();

		/* "No matching address range" is an answer: a gap. */
		if (error && !strstr(dwarf_errmsg(error), "no matching"))
			answer.unanswered = dwarf_errmsg(error);
		return answer;
	}
	if (dwarf_frame_info(frame, &start, &end, &signal) >= 0) {
		answer.start = start;
		answer.end = end;
		answer.rule = rule_of(frame, signal, &answer.unanswered);
	}
	free(frame);
	return answer;
}

static bool same(const struct unwind_rule *a, const struct unwind_rule *b)
{
	return !memcmp(a, b, sizeof(*a));
}

static void print_difference(struct judge *judge, const char *table, uint64_t vaddr,
			     const struct unwind_rule *ours, const struct unwind_rule *theirs)
{
	char a[80], b[80];

	if (judge->printed++ >= PRINTED_PER_FILE)
		return;
	printf("%s: %#lx (%s): heaptap %s, libdw %s\n", judge->path, vaddr, table,
	       rule_text(ours, a, sizeof(a)), rule_text(theirs, b, sizeof(b)));
}

static bool is_described(const struct judge *judge, uint64_t vaddr)
{
	size_t low = 0, high = judge->cfi ? cfi_count(judge->cfi) : 0;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (cfi_get(judge->cfi, middle)->start <= vaddr)
			low = middle + 1;
		else
			high = middle;
	}
	return low && vaddr < cfi_get(judge->cfi, low - 1)->end;
}

/* Whether libdw cannot be the judge of this address. */
static bool excused(struct judge *judge, const struct answer *answer, uint64_t vaddr)
{
	char text[120];

	if (answer->unanswered) {
		snprintf(text, sizeof(text), "call sites where libdw says: %s", answer->unanswered);
		count_reason(judge->totals, text);
		if (judge->verbose)
			printf("%s: %#lx: %s\n", judge->path, vaddr, answer->unanswered);
		return true;
	}
	if (answer->rule.cfa_kind != CFA_GAP || is_described(judge, vaddr))
		return false;
	count_reason(judge->totals, "call sites that nothing describes, decoded from code");
	return true;
}

static void judge_callsites(struct judge *judge)
{
	struct answer answer = {};
	const struct code_segment *segment = NULL;

	for (size_t i = 0; i < judge->callsites.count; i++) {
		uint64_t offset = judge->callsites.lookups[i], vaddr;
		struct unwind_rule all, few;

		if (!segment || offset - segment->offset >= segment->size) {
			segment = code_at_offset(&judge->code, offset);
			answer.end = 0;
		}
		vaddr = offset - segment->offset + segment->vaddr;
		if (!answer.end || vaddr < answer.start || vaddr >= answer.end)
			answer = ask(judge, vaddr);
		all = unwind_rows_lookup(judge->all, offset);
		few = unwind_rows_lookup(judge->few, offset);
		judge->totals->callsites++;
		judge->totals->kinds[few.cfa_kind]++;
		if (same(&all, &answer.rule) && same(&few, &answer.rule) && !answer.unanswered)
			continue;
		if (same(&all, &few) && excused(judge, &answer, vaddr))
			continue;
		judge->totals->differing++;
		if (!same(&all, &answer.rule))
			print_difference(judge, "all rows", vaddr, &all, &answer.rule);
		else
			print_difference(judge, "call sites", vaddr, &few, &answer.rule);
	}
}

/* One row of libdw against all of ours that share an address with it. */
static void judge_row(struct judge *judge, const struct answer *answer, uint64_t start,
		      uint64_t end, uint64_t to_offset)
{
	const struct unwind_rows *rows = judge->all;
	size_t low = 0, high = rows->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (rows->entries[middle].offset <= start + to_offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (low)
		low--;
	for (size_t i = low; i < rows->count && rows->entries[i].offset < end + to_offset; i++) {
		const struct unwind_rule *rule = &rows->entries[i].rule;

		if (same(rule, &answer->rule))
			continue;
		judge->totals->differing_rows++;
		if (judge->verbose)
			print_difference(judge, "row", rows->entries[i].offset - to_offset, rule,
					 &answer->rule);
	}
}

static void judge_rows(struct judge *judge)
{
	uint64_t done = 0;

	for (size_t i = 0; judge->cfi && i < cfi_count(judge->cfi); i++) {
		const struct cfi_function *function = cfi_get(judge->cfi, i);
		const struct code_segment *segment = code_at_vaddr(&judge->code, function->start);
		uint64_t pc = function->start, end = function->end;

		if (!segment)
			continue;
		if (end > segment->vaddr + segment->size)
			end = segment->vaddr + segment->size;
		if (pc < done)
			pc = done;
		while (pc < end) {
			struct answer answer = ask(judge, pc);
			uint64_t stop = answer.end > pc ? answer.end : pc + 1;

			if (stop > end)
				stop = end;
			if (answer.unanswered)
				judge->totals->unanswered_rows++;
			else
				judge_row(judge, &answer, pc, stop,
					  segment->offset - segment->vaddr);
			judge->totals->rows++;
			pc = stop;
		}
		if (end > done)
			done = end;
	}
}

static int judge_open(struct judge *judge)
{
	int fd = open(judge->path, O_RDONLY | O_CLOEXEC), err;

	if (fd < 0)
		return -errno;
	err = image_open(fd, judge->path, &judge->image);
	if (err)
		return err;
	symtab_load(judge->image, &judge->symtab);
	err = code_load(judge->image, &judge->code);
	if (!err)
		err = unwind_rows_build(judge->image, judge->symtab, true, &judge->all);
	if (!err)
		err = unwind_rows_build(judge->image, judge->symtab, false, &judge->few);
	if (!err)
		err = callsites_scan(&judge->code, &judge->callsites);
	if (!err && cfi_load(judge->image, &judge->cfi) == -ENOMEM)
		err = -ENOMEM;
	return err;
}

static void judge_file(struct totals *totals, const char *path, bool verbose)
{
	struct judge judge = {.totals = totals, .path = path, .verbose = verbose};
	Dwarf *dwarf = NULL;
	int fd = -1, err = judge_open(&judge);

	if (!err) {
		fd = open(path, O_RDONLY | O_CLOEXEC);
		dwarf = dwarf_begin(fd, DWARF_C_READ);
		judge.eh = dwarf_getcfi_elf(image_elf(judge.image));
		judge.debug = dwarf ? dwarf_getcfi(dwarf) : NULL;
		totals->files++;
		totals->synthesized += judge.all->synthesized;
		judge_callsites(&judge);
		judge_rows(&judge);
	} else if (err == -ENOENT) {
		totals->no_table++;
	} else if (err != -ENOEXEC) {
		fprintf(stderr, "%s: %s\n", path, strerror(-err));
	}
	if (judge.eh)
		dwarf_cfi_end(judge.eh);
	dwarf_end(dwarf);
	if (fd >= 0)
		close(fd);
	cfi_free(judge.cfi);
	callsites_fini(&judge.callsites);
	unwind_rows_free(judge.few);
	unwind_rows_free(judge.all);
	symtab_free(judge.symtab);
	image_free(judge.image);
}

int main(int argc, char **argv)
{
	struct totals totals = {};
	bool verbose = false;

	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--rows"))
			verbose = true;
		else
			judge_file(&totals, argv[i], verbose);
	}
	for (size_t i = 0; i < totals.reason_count; i++)
		printf("%zu: %s\n", totals.reasons[i].count, totals.reasons[i].text);
	printf("kinds: gap=%zu unsupported=%zu end=%zu sp=%zu bp=%zu deref_bp=%zu deref_sp=%zu\n",
	       totals.kinds[CFA_GAP], totals.kinds[CFA_UNSUPPORTED], totals.kinds[CFA_END],
	       totals.kinds[CFA_SP], totals.kinds[CFA_BP], totals.kinds[CFA_DEREF_BP],
	       totals.kinds[CFA_DEREF_SP]);
	printf("other_rows_differing=%zu other_rows_unanswered=%zu no_table=%zu\n",
	       totals.differing_rows, totals.unanswered_rows, totals.no_table);
	printf("files=%zu rows=%zu callsites=%zu differing=%zu\n", totals.files, totals.rows,
	       totals.callsites, totals.differing);
	return totals.differing ? 1 : 0;
}
