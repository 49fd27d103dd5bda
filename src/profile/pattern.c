/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Thompson's construction: the expression becomes a program whose threads run through the text in
 * step, at most one at each instruction (https://swtch.com/~rsc/regexp/regexp2.html). Targets of
 * jumps are relative, so that code can be moved and copied as it is put together.
 */
#include "profile/pattern.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_INSTRUCTIONS 8192
#define MAX_DEPTH	 200
#define MAX_REPEAT	 1000 /* as in Go */

enum opcode {
	OP_SET,	  /* one byte of sets[a] */
	OP_SPLIT, /* go on at +a and at +b */
	OP_JUMP,  /* go on at +a */
	OP_BEGIN, /* only at the start of the text */
	OP_END,	  /* only at its end */
	OP_MATCH,
};

struct instruction {
	uint8_t opcode;
	int16_t a;
	int16_t b;
};

struct byte_set {
	uint32_t bits[8];
};

struct pattern {
	struct instruction *code;
	size_t size;
	struct byte_set *sets;
	size_t set_count;
	/* Threads are indexes of instructions. */
	uint16_t *now;
	uint16_t *next;
	uint16_t *pending;
	uint32_t *reached; /* by instruction: the step that has a thread there */
	uint32_t step;
};

struct parser {
	struct pattern *pattern;
	const char *text;
	size_t depth;
	int err;
};

static void set_add(struct byte_set *set, uint8_t byte)
{
	set->bits[byte / 32] |= 1u << byte % 32;
}

static bool set_has(const struct byte_set *set, uint8_t byte)
{
	return set->bits[byte / 32] >> byte % 32 & 1;
}

static void set_add_range(struct byte_set *set, uint8_t first, uint8_t last)
{
	for (unsigned int byte = first; byte <= last; byte++)
		set_add(set, byte);
}

static void set_invert(struct byte_set *set)
{
	for (size_t i = 0; i < 8; i++)
		set->bits[i] = ~set->bits[i];
}

static void set_merge(struct byte_set *set, const struct byte_set *other)
{
	for (size_t i = 0; i < 8; i++)
		set->bits[i] |= other->bits[i];
}

static void invalid(struct parser *p)
{
	if (!p->err)
		p->err = -EINVAL;
}

/* Inserts count undefined instructions at a position. NULL if there is no room. */
static struct instruction *open_gap(struct parser *p, size_t at, size_t count)
{
	struct pattern *pattern = p->pattern;

	if (p->err || pattern->size + count > MAX_INSTRUCTIONS) {
		invalid(p);
		return NULL;
	}
	memmove(pattern->code + at + count, pattern->code + at,
		(pattern->size - at) * sizeof(pattern->code[0]));
	pattern->size += count;
	return pattern->code + at;
}

static void insert(struct parser *p, size_t at, enum opcode opcode, int a, int b)
{
	struct instruction *code = open_gap(p, at, 1);

	if (code)
		*code = (struct instruction){.opcode = opcode, .a = a, .b = b};
}

static void append(struct parser *p, enum opcode opcode, int a, int b)
{
	insert(p, p->pattern->size, opcode, a, b);
}

static void append_set(struct parser *p, const struct byte_set *set)
{
	struct pattern *pattern = p->pattern;

	/* There is an array of sets as large as the program may become. */
	if (pattern->set_count == MAX_INSTRUCTIONS) {
		invalid(p);
		return;
	}
	pattern->sets[pattern->set_count] = *set;
	append(p, OP_SET, pattern->set_count++, 0);
}

static int hex_value(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *digit = c ? strchr(digits, tolower((unsigned char)c)) : NULL;

	return digit ? digit - digits : -1;
}

/* A class such as \w; false if the letter names none. */
static bool perl_class(char letter, struct byte_set *ret)
{
	struct byte_set set = {0};

	switch (tolower((unsigned char)letter)) {
	case 'w':
		set_add_range(&set, 'a', 'z');
		set_add_range(&set, 'A', 'Z');
		set_add(&set, '_');
		/* fall through */
	case 'd':
		set_add_range(&set, '0', '9');
		break;
	case 's':
		for (const char *c = "\t\n\f\r "; *c; c++)
			set_add(&set, *c);
		break;
	default:
		return false;
	}
	if (isupper((unsigned char)letter))
		set_invert(&set);
	*ret = set;
	return true;
}

/* What follows a backslash: one byte, or a class. */
static struct byte_set parse_escape(struct parser *p)
{
	static const char letters[] = "afnrtv", bytes[] = "\a\f\n\r\t\v";
	struct byte_set set = {0};
	char c = *p->text;
	const char *letter;
	int high, low;

	if (!c) {
		invalid(p);
		return set;
	}
	p->text++;
	if (perl_class(c, &set))
		return set;
	letter = strchr(letters, c);
	if (letter) {
		set_add(&set, bytes[letter - letters]);
	} else if (c == 'x') {
		high = hex_value(*p->text);
		low = high < 0 ? -1 : hex_value(p->text[1]);
		/* Past ASCII it would be a character of several bytes. */
		if (low < 0 || high > 7) {
			invalid(p);
			return set;
		}
		p->text += 2;
		set_add(&set, high * 16 + low);
	} else if (ispunct((unsigned char)c)) {
		set_add(&set, c);
	} else {
		invalid(p);
	}
	return set;
}

/* [:alpha:] within brackets; false if there is none here. */
static bool parse_named_class(struct parser *p, struct byte_set *set)
{
	static const struct {
		const char *name;
		int (*has)(int c);
	} classes[] = {
		{"[:alnum:]", isalnum}, {"[:alpha:]", isalpha}, {"[:blank:]", isblank},
		{"[:cntrl:]", iscntrl}, {"[:digit:]", isdigit}, {"[:graph:]", isgraph},
		{"[:lower:]", islower}, {"[:print:]", isprint}, {"[:punct:]", ispunct},
		{"[:space:]", isspace}, {"[:upper:]", isupper}, {"[:xdigit:]", isxdigit},
	};

	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		if (strncmp(p->text, classes[i].name, strlen(classes[i].name)) != 0)
			continue;
		p->text += strlen(classes[i].name);
		for (int c = 0; c < 128; c++) {
			if (classes[i].has(c))
				set_add(set, c);
		}
		return true;
	}
	return false;
}

/* The only byte of a set, or -1. */
static int set_single(const struct byte_set *set)
{
	int single = -1;

	for (int byte = 0; byte < 256; byte++) {
		if (!set_has(set, byte))
			continue;
		if (single >= 0)
			return -1;
		single = byte;
	}
	return single;
}

static struct byte_set parse_bracket_item(struct parser *p)
{
	struct byte_set set = {0};

	if (*p->text == '\\') {
		p->text++;
		return parse_escape(p);
	}
	/* A character of several bytes is no member of a set of bytes. */
	if (!*p->text || (unsigned char)*p->text >= 0x80)
		invalid(p);
	else
		set_add(&set, *p->text++);
	return set;
}

static void parse_bracket(struct parser *p)
{
	struct byte_set set = {0}, item, last;
	bool inverted = *p->text == '^';

	p->text += inverted;
	/* A bracket that comes first is a member. */
	do {
		if (parse_named_class(p, &set))
			continue;
		item = parse_bracket_item(p);
		if (p->text[0] == '-' && p->text[1] != ']' && !p->err) {
			p->text++;
			last = parse_bracket_item(p);
			if (set_single(&item) < 0 || set_single(&last) < set_single(&item))
				invalid(p);
			else
				set_add_range(&item, set_single(&item), set_single(&last));
		}
		set_merge(&set, &item);
	} while (!p->err && *p->text != ']');
	if (p->err)
		return;
	p->text++;
	if (inverted)
		set_invert(&set);
	append_set(p, &set);
}

static void parse_alternatives(struct parser *p);

static void parse_group(struct parser *p)
{
	const char *end;

	if (strncmp(p->text, "?:", 2) == 0) {
		p->text += 2;
	} else if (strncmp(p->text, "?P<", 3) == 0) {
		end = strchr(p->text, '>');
		if (end)
			p->text = end + 1;
		else
			invalid(p);
	} else if (*p->text == '?') {
		invalid(p);
	}
	if (++p->depth > MAX_DEPTH)
		invalid(p);
	if (!p->err)
		parse_alternatives(p);
	p->depth--;
	if (*p->text == ')')
		p->text++;
	else
		invalid(p);
}

static void parse_atom(struct parser *p)
{
	struct byte_set set = {0};
	char c = *p->text++;

	switch (c) {
	case '(':
		parse_group(p);
		return;
	case '[':
		parse_bracket(p);
		return;
	case '.':
		set_add(&set, '\n');
		set_invert(&set);
		break;
	case '^':
		append(p, OP_BEGIN, 0, 0);
		return;
	case '$':
		append(p, OP_END, 0, 0);
		return;
	case '\\':
		if (*p->text == 'A' || *p->text == 'z') {
			append(p, *p->text++ == 'A' ? OP_BEGIN : OP_END, 0, 0);
			return;
		}
		set = parse_escape(p);
		break;
	case '*':
	case '+':
	case '?':
		invalid(p);
		return;
	default:
		set_add(&set, c);
		break;
	}
	append_set(p, &set);
}

/* Reads digits up to MAX_REPEAT; -1 if there are none, MAX_REPEAT + 1 for more. */
static int parse_count(const char **text)
{
	int count = isdigit((unsigned char)**text) ? 0 : -1;

	for (; isdigit((unsigned char)**text); (*text)++)
		count = count > MAX_REPEAT ? count : count * 10 + (**text - '0');
	return count > MAX_REPEAT ? MAX_REPEAT + 1 : count;
}

/* {n}, {n,} or {n,m}; *ret_max is -1 for no limit. False if it is none: then it is a literal. */
static bool parse_repeat(struct parser *p, int *ret_min, int *ret_max)
{
	const char *text = p->text + 1;
	int min = parse_count(&text), max = min;

	if (min < 0)
		return false;
	if (*text == ',') {
		text++;
		max = *text == '}' ? -1 : parse_count(&text);
		if (max < 0 && *text != '}')
			return false;
	}
	if (*text != '}')
		return false;
	p->text = text + 1;
	*ret_min = min;
	*ret_max = max;
	return true;
}

static void make_optional(struct parser *p, size_t at)
{
	insert(p, at, OP_SPLIT, 1, p->pattern->size - at + 1);
}

static void make_star(struct parser *p, size_t at)
{
	int size = p->pattern->size - at;

	insert(p, at, OP_SPLIT, 1, size + 2);
	append(p, OP_JUMP, -(size + 1), 0);
}

/* The code from `at` on, once, becomes min to max times that. */
static void make_repeat(struct parser *p, size_t at, int min, int max)
{
	size_t size = p->pattern->size - at, copy;
	struct instruction *code _cleanup_free_ = calloc(size + 1, sizeof(code[0]));

	if (!code) {
		p->err = -ENOMEM;
		return;
	}
	if (min > MAX_REPEAT || max > MAX_REPEAT || (max >= 0 && max < min)) {
		invalid(p);
		return;
	}
	memcpy(code, p->pattern->code + at, size * sizeof(code[0]));
	p->pattern->size = at;
	for (int i = 0; i < (max < 0 ? min + 1 : max) && !p->err; i++) {
		copy = p->pattern->size;
		if (!open_gap(p, copy, size))
			return;
		memcpy(p->pattern->code + copy, code, size * sizeof(code[0]));
		if (max < 0 && i == min)
			make_star(p, copy);
		else if (i >= min)
			make_optional(p, copy);
	}
}

/* An atom and what says how often. */
static void parse_piece(struct parser *p)
{
	size_t at = p->pattern->size;
	bool repeated = false;
	int min, max;

	parse_atom(p);
	while (!p->err) {
		switch (*p->text) {
		case '*':
			min = 0, max = -1;
			p->text++;
			break;
		case '+':
			min = 1, max = -1;
			p->text++;
			break;
		case '?':
			min = 0, max = 1;
			p->text++;
			break;
		case '{':
			if (!parse_repeat(p, &min, &max))
				return;
			break;
		default:
			return;
		}
		/* As in Go, a** is an error. */
		if (repeated) {
			invalid(p);
			return;
		}
		repeated = true;
		/* Lazy or not, it is the same match. */
		if (*p->text == '?')
			p->text++;
		if (min == 0 && max == -1)
			make_star(p, at);
		else if (min == 0 && max == 1)
			make_optional(p, at);
		else if (min == 1 && max == -1)
			append(p, OP_SPLIT, -(int)(p->pattern->size - at), 1);
		else
			make_repeat(p, at, min, max);
	}
}

static void parse_alternatives(struct parser *p)
{
	size_t at = p->pattern->size, second;

	while (!p->err && *p->text && *p->text != '|' && *p->text != ')')
		parse_piece(p);
	while (!p->err && *p->text == '|') {
		p->text++;
		/* Around the code so far: a choice before it, and a jump past the second after it.
		 */
		insert(p, at, OP_SPLIT, 1, p->pattern->size - at + 2);
		append(p, OP_JUMP, 0, 0);
		second = p->pattern->size;
		while (!p->err && *p->text && *p->text != '|' && *p->text != ')')
			parse_piece(p);
		p->pattern->code[second - 1].a = p->pattern->size - second + 1;
	}
}

static int compile(struct pattern *pattern, const char *expression)
{
	struct parser p = {.pattern = pattern, .text = expression};

	parse_alternatives(&p);
	if (*p.text)
		invalid(&p);
	append(&p, OP_MATCH, 0, 0);
	return p.err;
}

int pattern_new(const char *expression, struct pattern **ret)
{
	struct pattern *pattern CLEANUP(pattern) = calloc(1, sizeof(*pattern));
	int err;

	if (!pattern)
		return -ENOMEM;
	pattern->code = calloc(MAX_INSTRUCTIONS, sizeof(pattern->code[0]));
	pattern->sets = calloc(MAX_INSTRUCTIONS, sizeof(pattern->sets[0]));
	pattern->now = calloc(MAX_INSTRUCTIONS, sizeof(pattern->now[0]));
	pattern->next = calloc(MAX_INSTRUCTIONS, sizeof(pattern->next[0]));
	pattern->pending = calloc(MAX_INSTRUCTIONS, sizeof(pattern->pending[0]));
	pattern->reached = calloc(MAX_INSTRUCTIONS, sizeof(pattern->reached[0]));
	if (!pattern->code || !pattern->sets || !pattern->now || !pattern->next ||
	    !pattern->pending || !pattern->reached)
		return -ENOMEM;
	err = compile(pattern, expression);
	if (err)
		return err;
	*ret = take_ptr(pattern);
	return 0;
}

void pattern_free(struct pattern *pattern)
{
	if (!pattern)
		return;
	free(pattern->code);
	free(pattern->sets);
	free(pattern->now);
	free(pattern->next);
	free(pattern->pending);
	free(pattern->reached);
	free(pattern);
}

static size_t push(struct pattern *pattern, size_t count, size_t at)
{
	if (pattern->reached[at] == pattern->step)
		return count;
	pattern->reached[at] = pattern->step;
	pattern->pending[count] = at;
	return count + 1;
}

/* Adds the threads that start at an instruction. True if one of them is the match. */
static bool add_threads(struct pattern *pattern, size_t start, bool at_begin, bool at_end,
			uint16_t *threads, size_t *count)
{
	size_t pending = push(pattern, 0, start);

	while (pending) {
		size_t at = pattern->pending[--pending];
		const struct instruction *code = &pattern->code[at];

		switch (code->opcode) {
		case OP_SET:
			threads[(*count)++] = at;
			break;
		case OP_SPLIT:
			pending = push(pattern, pending, at + code->b);
			/* fall through */
		case OP_JUMP:
			pending = push(pattern, pending, at + code->a);
			break;
		case OP_BEGIN:
			if (at_begin)
				pending = push(pattern, pending, at + 1);
			break;
		case OP_END:
			if (at_end)
				pending = push(pattern, pending, at + 1);
			break;
		case OP_MATCH:
			return true;
		}
	}
	return false;
}

/* Makes `reached` forget everything. */
static void next_step(struct pattern *pattern)
{
	if (++pattern->step)
		return;
	memset(pattern->reached, 0, MAX_INSTRUCTIONS * sizeof(pattern->reached[0]));
	pattern->step = 1;
}

bool pattern_matches(struct pattern *pattern, const char *text, size_t length)
{
	size_t count = 0, next_count;
	uint16_t *swap;

	next_step(pattern);
	if (add_threads(pattern, 0, true, !length, pattern->now, &count))
		return true;
	for (size_t i = 0; i < length; i++) {
		bool at_end = i + 1 == length;

		next_step(pattern);
		next_count = 0;
		for (size_t t = 0; t < count; t++) {
			size_t at = pattern->now[t];

			if (set_has(&pattern->sets[pattern->code[at].a], text[i]) &&
			    add_threads(pattern, at + 1, false, at_end, pattern->next, &next_count))
				return true;
		}
		/* A match may start anywhere. */
		if (add_threads(pattern, 0, false, at_end, pattern->next, &next_count))
			return true;
		swap = pattern->now;
		pattern->now = pattern->next;
		pattern->next = swap;
		count = next_count;
	}
	return false;
}
