/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#define HASH_NONFATAL_OOM 1

#include "snapshots.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <uthash.h>

#include "heaptap/weight.h"
#include "output/file.h"
#include "util/log.h"

#define SUFFIX ".pb.gz"

/* The series of one process. */
struct series {
	pid_t pid;
	unsigned int number;
	UT_hash_handle hh;
};

struct snapshots {
	char *prefix;
	char *last;
	struct series *series; /* by pid; 0: of all processes */
	unsigned int count;
};

/* Whether name is BASE.NNNN.pb.gz, or BASE.PID.NNNN.pb.gz. */
static bool is_snapshot(const char *name, const char *base)
{
	size_t length = strlen(base), digits;

	if (strncmp(name, base, length) || name[length] != '.')
		return false;
	name += length + 1;
	digits = strspn(name, "0123456789");
	if (digits && name[digits] == '.' && name[digits + 1] >= '0' && name[digits + 1] <= '9') {
		name += digits + 1;
		digits = strspn(name, "0123456789");
	}
	return digits >= 4 && !strcmp(name + digits, SUFFIX);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static void remove_in(const char *folder, const char *base)
{
	struct dirent **entries;
	int count = scandir(folder, &entries, NULL, by_name);

	for (int i = 0; i < count; i++) {
		_cleanup_free_ struct dirent *entry = entries[i];
		_cleanup_free_ char *path = NULL;

		if (!is_snapshot(entry->d_name, base))
			continue;
		if (asprintf(&path, "%s/%s", folder, entry->d_name) < 0) {
			path = NULL;
			continue;
		}
		log_info("Removing old heap profile %s", path);
		if (unlink(path))
			log_error(errno,
				  "cannot remove '%s' (--keep-old leaves older snapshots "
				  "alone)",
				  path);
	}
	if (count >= 0)
		free(entries);
}

void snapshots_remove_old(struct snapshots *snapshots)
{
	_cleanup_free_ char *for_folder = strdup(snapshots->prefix);
	_cleanup_free_ char *for_base = strdup(snapshots->prefix);

	if (for_folder && for_base)
		remove_in(dirname(for_folder), basename(for_base));
}

static int check_folder(const char *prefix, const char *folder)
{
	_cleanup_free_ char *probe = NULL;
	struct stat st;
	int fd;

	if (prefix[strlen(prefix) - 1] == '/' || (!stat(prefix, &st) && S_ISDIR(st.st_mode)))
		return log_error(
			0,
			"output prefix '%s' is a folder: give the beginning of a file name, "
			"such as -o %s%sheaptap",
			prefix, prefix, prefix[strlen(prefix) - 1] == '/' ? "" : "/");
	if (asprintf(&probe, "%s/.heaptap.XXXXXX", folder) < 0) {
		probe = NULL;
		return log_error(ENOMEM, "cannot check the folder '%s'", folder);
	}
	fd = mkostemp(probe, O_CLOEXEC);
	if (fd < 0)
		return log_error(
			errno,
			"cannot write snapshots to the folder '%s' (choose another with -o "
			"PREFIX)",
			folder);
	close(fd);
	unlink(probe);
	return 0;
}

/* Room for the number, which may grow to ten digits, and the suffix. */
#define MAX_BASE (NAME_MAX - 1 - 10 - (sizeof(SUFFIX) - 1))

int snapshots_open(const char *prefix, struct snapshots **ret)
{
	struct snapshots *snapshots CLEANUP(snapshots) = NULL;
	_cleanup_free_ char *for_folder = NULL, *for_base = NULL;
	int err;

	if (!*prefix)
		return log_error(0, "the output prefix is empty: give one with -o PREFIX");
	for_folder = strdup(prefix);
	for_base = strdup(prefix);
	snapshots = calloc(1, sizeof(*snapshots));
	if (!for_folder || !for_base || !snapshots)
		return log_error(ENOMEM, "cannot prepare the output");
	snapshots->prefix = strdup(prefix);
	if (!snapshots->prefix)
		return log_error(ENOMEM, "cannot prepare the output");
	if (strlen(basename(for_base)) > MAX_BASE)
		return log_error(ENAMETOOLONG,
				 "output prefix of %zu characters (at most %zu; shorten -o PREFIX)",
				 strlen(basename(for_base)), MAX_BASE);
	err = check_folder(prefix, dirname(for_folder));
	if (err)
		return err;
	*ret = take_ptr(snapshots);
	return 0;
}

void snapshots_close(struct snapshots *snapshots)
{
	struct series *series, *next;

	if (!snapshots)
		return;
	HASH_ITER (hh, snapshots->series, series, next) {
		HASH_DEL(snapshots->series, series);
		free(series);
	}
	free(snapshots->prefix);
	free(snapshots->last);
	free(snapshots);
}

/* "N MB", "N kB" or "N bytes", whichever is the first that is not 0. */
static void format_amount(unsigned long long bytes, char *text, size_t size)
{
	if (bytes >> 20)
		snprintf(text, size, "%llu MB", bytes >> 20);
	else if (bytes >> 10)
		snprintf(text, size, "%llu kB", bytes >> 10);
	else
		snprintf(text, size, "%llu bytes", bytes);
}

/* The same where nothing is known of what is in use. */
static void describe_sum(const struct epoch_record *record, const struct reason_sum *sum,
			 char *text, size_t size)
{
	char amount[32];

	format_amount(sum->bytes, amount, sizeof(amount));
	switch (record->reason) {
	case EPOCH_EXIT:
	case EPOCH_LEFT:
		snprintf(text, size, "Exiting, %s %s", amount, sum->what);
		break;
	case EPOCH_DETACH:
		snprintf(text, size, "Detaching, %s %s", amount, sum->what);
		break;
	default:
		snprintf(text, size, "%s %s cumulatively", amount, sum->what);
		break;
	}
}

void snapshots_reason(const struct epoch_record *record, const struct reason_sum *sum,
		      unsigned long long since_last_s, char *text, size_t size)
{
	unsigned long long allocated = record->totals.alloc_bytes >> WEIGHT_BYTES_SHIFT;
	unsigned long long freed = record->totals.freed_bytes >> WEIGHT_BYTES_SHIFT;
	unsigned long long inuse = epoch_inuse_bytes(&record->totals) >> WEIGHT_BYTES_SHIFT;
	char amount[32];

	if (sum && record->reason != EPOCH_TIME_INTERVAL && record->reason != EPOCH_SIGNAL) {
		describe_sum(record, sum, text, size);
		return;
	}
	format_amount(inuse, amount, sizeof(amount));
	switch (record->reason) {
	case EPOCH_ALLOC_INTERVAL:
		snprintf(text, size, "%llu MB allocated cumulatively, %llu MB currently in use",
			 allocated >> 20, inuse >> 20);
		break;
	case EPOCH_FREE_INTERVAL:
		snprintf(text, size, "%llu MB freed cumulatively, %llu MB currently in use",
			 freed >> 20, inuse >> 20);
		break;
	case EPOCH_INUSE_INTERVAL:
		snprintf(text, size, "%llu MB currently in use", inuse >> 20);
		break;
	case EPOCH_TIME_INTERVAL:
		snprintf(text, size, "%llu sec since the last dump", since_last_s);
		break;
	case EPOCH_SIGNAL:
		snprintf(text, size, "signal");
		break;
	case EPOCH_EXIT:
	case EPOCH_LEFT:
		snprintf(text, size, "Exiting, %s in use", amount);
		break;
	default:
		snprintf(text, size, "Detaching, %s in use", amount);
		break;
	}
}

static struct series *find_series(struct snapshots *snapshots, pid_t pid)
{
	struct series *series;

	HASH_FIND(hh, snapshots->series, &pid, sizeof(pid), series);
	if (series)
		return series;
	series = calloc(1, sizeof(*series));
	if (!series)
		return NULL;
	series->pid = pid;
	HASH_ADD(hh, snapshots->series, pid, sizeof(series->pid), series);
	if (!series->hh.tbl) {
		free(series);
		return NULL;
	}
	return series;
}

/* PREFIX.NNNN.pb.gz, or PREFIX.PID.NNNN.pb.gz; NULL without memory. */
static char *next_path(struct snapshots *snapshots, pid_t pid)
{
	struct series *series = find_series(snapshots, pid);
	char *path;
	int length;

	if (!series)
		return NULL;
	series->number++;
	if (pid)
		length = asprintf(&path, "%s.%d.%04u" SUFFIX, snapshots->prefix, pid,
				  series->number);
	else
		length = asprintf(&path, "%s.%04u" SUFFIX, snapshots->prefix, series->number);
	return length < 0 ? NULL : path;
}

int snapshots_write(struct snapshots *snapshots, pid_t pid, const struct profile *profile,
		    const char *reason)
{
	_cleanup_free_ char *path = next_path(snapshots, pid);
	int err;

	if (!path)
		return log_error(ENOMEM, "cannot write a snapshot");
	log_info("Dumping heap profile to %s (%s)", path, reason);
	err = output_write_file(profile, output_find("pprof"), path);
	if (err)
		return log_error(err, "Failed dumping heap profile to %s (the session goes on)",
				 path);
	snapshots->count++;
	free(snapshots->last);
	snapshots->last = take_ptr(path);
	return 0;
}

void snapshots_report(const struct snapshots *snapshots)
{
	if (snapshots->last)
		log_info("%u snapshot%s written. To see the last: heaptap report %s\n"
			 "or: go tool pprof -http=: %s",
			 snapshots->count, snapshots->count == 1 ? "" : "s", snapshots->last,
			 snapshots->last);
}
