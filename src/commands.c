/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "commands.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "profile/pprof_read.h"
#include "util/cleanup.h"
#include "util/log.h"

/* As gperftools and jemalloc write profiles: text that begins with one of these. */
static bool is_text_profile(const char *path)
{
	static const char *const beginnings[] = {"heap profile:", "heap_v2/", "heapz_v2/"};
	_cleanup_fclose_ FILE *file = fopen(path, "re");
	char text[16] = "";

	if (!file || !fread(text, 1, sizeof(text) - 1, file))
		return false;
	for (size_t i = 0; i < ARRAY_SIZE(beginnings); i++)
		if (!strncmp(text, beginnings[i], strlen(beginnings[i])))
			return true;
	return false;
}

static void explain_damaged(const char *path)
{
	if (is_text_profile(path))
		log_error(0,
			  "'%s' is a heap profile by gperftools or jemalloc, in their own text "
			  "form, not by heaptap: `go tool pprof PROGRAM FILE` reads it, and so "
			  "does `jeprof`",
			  path);
	else
		log_error(0,
			  "'%s' is no valid pprof profile, or a damaged one; "
			  "give a .pb.gz file by heaptap or another pprof writer",
			  path);
}

int command_read_profile(const char *path, struct profile **ret)
{
	int err = pprof_read(path, ret);

	switch (err) {
	case 0:
		return 0;
	case -ENODATA:
		log_error(0,
			  "'%s' is empty: no profile was written to it; "
			  "give a file that `heaptap record` has named",
			  path);
		break;
	case -EBADMSG:
		explain_damaged(path);
		break;
	case -E2BIG:
		log_error(0,
			  "'%s' is larger than 1 GiB when decompressed; use `go tool pprof` for it",
			  path);
		break;
	case -ENOENT:
		log_error(err,
			  "cannot open '%s' (check the path; `heaptap record` names its "
			  "files as it writes them)",
			  path);
		break;
	case -EISDIR:
		log_error(err, "cannot read '%s' (give a file in it)", path);
		break;
	case -EACCES:
		log_error(err, "cannot open '%s' (snapshots of `sudo heaptap` may belong to root)",
			  path);
		break;
	default:
		log_error(err, "cannot read '%s'", path);
		break;
	}
	return err;
}
