/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Replays inputs through a fuzz target without libFuzzer: every file named, and every file of a
 * folder named, in the order of their names. Fails if there was none, so that a lost corpus shows.
 */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "util/cleanup.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path, size_t *count)
{
	FILE *file _cleanup_fclose_ = fopen(path, "r");
	uint8_t *data _cleanup_free_ = NULL;
	struct stat st;

	if (!file || fstat(fileno(file), &st) < 0)
		return -errno;
	/* Of the very size, so that a sanitizer sees a read past the end. */
	data = malloc(st.st_size);
	if (st.st_size && (!data || fread(data, st.st_size, 1, file) != 1))
		return -EIO;
	LLVMFuzzerTestOneInput(data, st.st_size);
	(*count)++;
	return 0;
}

static int is_visible(const struct dirent *entry)
{
	return entry->d_name[0] != '.';
}

static int replay_folder(const char *folder, size_t *count)
{
	struct dirent **entries;
	int n = scandir(folder, &entries, is_visible, alphasort);
	int err = n < 0 ? -errno : 0;

	for (int i = 0; i < n; i++) {
		char *path _cleanup_free_ = NULL;

		if (!err && asprintf(&path, "%s/%s", folder, entries[i]->d_name) >= 0)
			err = replay_file(path, count);
		free(entries[i]);
	}
	if (n >= 0)
		free(entries);
	return err;
}

int main(int argc, char **argv)
{
	size_t count = 0;
	struct stat st;
	int err;

	for (int i = 1; i < argc; i++) {
		if (stat(argv[i], &st) < 0)
			err = -errno;
		else if (S_ISDIR(st.st_mode))
			err = replay_folder(argv[i], &count);
		else
			err = replay_file(argv[i], &count);
		if (err) {
			fprintf(stderr, "%s: %s\n", argv[i], strerror(-err));
			return 1;
		}
	}
	printf("%zu inputs replayed\n", count);
	return count ? 0 : 1;
}
