/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "commands.h"

#include <errno.h>

#include "profile/pprof_read.h"
#include "util/log.h"

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
		log_error(0,
			  "'%s' is no valid pprof profile, or a damaged one; "
			  "give a .pb.gz file by heaptap or another pprof writer",
			  path);
		break;
	case -E2BIG:
		log_error(0, "'%s' is larger than 1 GiB when decompressed; use `pprof` for it",
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
