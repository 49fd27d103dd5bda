/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The places are gdb's ("Debugging Information in Separate Files"):
 *   DEBUG/.build-id/XX/YYYY.debug
 *   FOLDER/LINK, FOLDER/.debug/LINK, DEBUG/FOLDER/LINK
 * where DEBUG is /usr/lib/debug or one of the user's folders, FOLDER the image's, and LINK the name
 * in .gnu_debuglink. That section is the name, padded to four bytes with zeros, and the CRC-32 of
 * the whole file.
 */
#include "elf/debuginfo.h"
#include "elf/section.h"

#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <zlib.h>

#include <elfutils/debuginfod.h>

#include "util/clock.h"
#include "util/cursor.h"
#include "util/root.h"

#define SYSTEM_DEBUG_DIR "/usr/lib/debug"
/* A section .gnu_debuglink is a file name and a checksum. */
#define LINK_MAX_SIZE (NAME_MAX + 8)
/* Checksums of larger files are not computed; nothing without a build-id is so large. */
#define CHECKSUM_MAX_BYTES (4ull << 30)
#define NOTES_MAX_BYTES	   65536u

#define NS_PER_S	1000000000ull
#define DOWNLOAD_MAX_NS (20 * NS_PER_S)
#define ALL_MAX_NS	(60 * NS_PER_S)

struct debuginfo {
	char **dirs;
	size_t dir_count;
	int own_root_fd;
	debuginfod_client *client;
	uint64_t deadline_ns;
	struct debuginfo_stats stats;
};

/* What to look for, and the image it is for. */
struct search {
	struct debuginfo *debuginfo;
	const struct image *image;
	const char *build_id;
	const char *folder;	      /* of the image, without the last slash */
	char link[LINK_MAX_SIZE + 1]; /* "": no .gnu_debuglink */
	uint32_t checksum;
};

int debuginfo_new(const char *const *dirs, size_t dir_count, struct debuginfo **ret)
{
	struct debuginfo *debuginfo CLEANUP(debuginfo) = calloc(1, sizeof(*debuginfo));

	if (!debuginfo)
		return -ENOMEM;
	debuginfo->own_root_fd = root_open("/");
	debuginfo->dirs = calloc(dir_count + 1, sizeof(*debuginfo->dirs));
	if (!debuginfo->dirs)
		return -ENOMEM;
	for (size_t i = 0; i < dir_count; i++) {
		debuginfo->dirs[i] = strdup(dirs[i]);
		if (!debuginfo->dirs[i])
			return -ENOMEM;
		debuginfo->dir_count++;
	}
	*ret = take_ptr(debuginfo);
	return 0;
}

void debuginfo_free(struct debuginfo *debuginfo)
{
	if (!debuginfo)
		return;
	if (debuginfo->client)
		debuginfod_end(debuginfo->client);
	for (size_t i = 0; i < debuginfo->dir_count; i++)
		free(debuginfo->dirs[i]);
	if (debuginfo->own_root_fd >= 0)
		close(debuginfo->own_root_fd);
	free(debuginfo->dirs);
	free(debuginfo);
}

bool debuginfo_has_dwarf(const struct image *image)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	GElf_Shdr shdr;

	return elf &&
	       (section_find(elf, ".debug_info", &shdr) ||
		section_find(elf, ".zdebug_info", &shdr)) &&
	       shdr.sh_type != SHT_NOBITS;
}

/*
 * The build-id as the sections tell it. A debug file's program headers may be the image's, with
 * offsets that mean nothing in it.
 */
static void read_build_id(const struct image *image, char *text, size_t size)
{
	Elf *elf CLEANUP(elf) = image_elf_new(image);
	Elf_Scn *scn = NULL;
	GElf_Shdr shdr;

	snprintf(text, size, "%s", image_build_id(image));
	while (elf && (scn = elf_nextscn(elf, scn))) {
		size_t offset = 0, name_at, desc_at;
		Elf_Data *data;
		GElf_Nhdr note;

		if (!gelf_getshdr(scn, &shdr) || shdr.sh_type != SHT_NOTE ||
		    shdr.sh_size > NOTES_MAX_BYTES)
			continue;
		data = elf_getdata(scn, NULL);
		while (data && (offset = gelf_getnote(data, offset, &note, &name_at, &desc_at))) {
			const uint8_t *desc = (const uint8_t *)data->d_buf + desc_at;

			if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != 4 ||
			    memcmp((const char *)data->d_buf + name_at, "GNU", 4) ||
			    2 * (size_t)note.n_descsz >= size)
				continue;
			*text = 0;
			for (size_t i = 0; i < note.n_descsz; i++)
				sprintf(text + 2 * i, "%02x", desc[i]);
			return;
		}
	}
}

static void read_link(struct search *search)
{
	Elf *elf CLEANUP(elf) = image_elf_new(search->image);
	const Elf_Data *data;
	struct cursor c;
	Elf_Scn *scn;
	GElf_Shdr shdr;
	size_t length;

	scn = elf ? section_find(elf, ".gnu_debuglink", &shdr) : NULL;
	if (!scn || shdr.sh_type == SHT_NOBITS || shdr.sh_size > LINK_MAX_SIZE)
		return;
	data = elf_rawdata(scn, NULL);
	if (!data || !data->d_buf)
		return;
	c = cursor_init(data->d_buf, data->d_size);
	length = strnlen(data->d_buf, data->d_size);
	/* The name alone: a path in it could lead anywhere. */
	if (!length || memchr(data->d_buf, '/', length))
		return;
	cursor_bytes(&c, (length + 4) & ~(size_t)3);
	search->checksum = cursor_u32(&c);
	if (!c.underflow)
		memcpy(search->link, data->d_buf, length);
}

static bool checksum_is(int fd, uint32_t wanted)
{
	_cleanup_free_ uint8_t *buffer = malloc(1 << 18);
	uint32_t checksum = 0;
	uint64_t offset = 0;
	ssize_t n;

	if (!buffer)
		return false;
	while ((n = pread(fd, buffer, 1 << 18, offset)) > 0 && offset < CHECKSUM_MAX_BYTES) {
		checksum = crc32(checksum, buffer, n);
		offset += n;
	}
	return !n && checksum == wanted;
}

static bool is_same_file(const struct image *image, int fd)
{
	struct stat a, b;

	return !fstat(image_fd(image), &a) && !fstat(fd, &b) && a.st_dev == b.st_dev &&
	       a.st_ino == b.st_ino;
}

/* Opens what was found if it belongs to the image. Takes the descriptor over. */
static int accept_file(struct search *search, int fd, const char *path, bool by_link,
		       struct image **ret)
{
	struct image *found CLEANUP(image) = NULL;
	char build_id[2 * 64 + 1];
	int err;

	if (is_same_file(search->image, fd)) {
		close(fd);
		return -ENOENT;
	}
	err = image_open(fd, path, &found);
	if (err)
		return err == -ENOMEM ? err : -ENOENT;
	read_build_id(found, build_id, sizeof(build_id));
	if (strcmp(build_id, search->build_id) ||
	    (by_link && !checksum_is(image_fd(found), search->checksum))) {
		search->debuginfo->stats.refused++;
		return -ENOENT;
	}
	*ret = take_ptr(found);
	return 0;
}

static int try_path(struct search *search, int root_fd, bool by_link, struct image **ret,
		    const char *format, ...) __attribute__((format(printf, 5, 6)));

static int try_path(struct search *search, int root_fd, bool by_link, struct image **ret,
		    const char *format, ...)
{
	char path[PATH_MAX];
	va_list args;
	int length, fd;

	va_start(args, format);
	length = vsnprintf(path, sizeof(path), format, args);
	va_end(args);
	if (length < 0 || length >= (int)sizeof(path))
		return -ENOENT;
	/* The user's own folders may be relative, and are the user's. */
	fd = root_fd == AT_FDCWD ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)
				 : root_open_file(root_fd, path);
	return fd >= 0 ? accept_file(search, fd, path, by_link, ret) : -ENOENT;
}

/* In a folder laid out like /usr/lib/debug. */
static int search_debug_dir(struct search *search, int root_fd, const char *dir, bool by_link,
			    struct image **ret)
{
	if (by_link)
		return try_path(search, root_fd, true, ret, "%s%s/%s", dir, search->folder,
				search->link);
	return try_path(search, root_fd, false, ret, "%s/.build-id/%.2s/%s.debug", dir,
			search->build_id, search->build_id + 2);
}

static int search_root(struct search *search, int root_fd, bool by_link, struct image **ret)
{
	int err = -ENOENT;

	if (by_link) {
		err = try_path(search, root_fd, true, ret, "%s/%s", search->folder, search->link);
		if (err == -ENOENT)
			err = try_path(search, root_fd, true, ret, "%s/.debug/%s", search->folder,
				       search->link);
	}
	return err == -ENOENT ? search_debug_dir(search, root_fd, SYSTEM_DEBUG_DIR, by_link, ret)
			      : err;
}

static int search_folders(struct search *search, int root_fd, bool by_link, struct image **ret)
{
	const struct debuginfo *debuginfo = search->debuginfo;
	int err = -ENOENT;

	for (size_t i = 0; i < debuginfo->dir_count && err == -ENOENT; i++)
		err = search_debug_dir(search, AT_FDCWD, debuginfo->dirs[i], by_link, ret);
	if (err == -ENOENT && root_fd >= 0)
		err = search_root(search, root_fd, by_link, ret);
	if (err == -ENOENT && debuginfo->own_root_fd >= 0)
		err = search_root(search, debuginfo->own_root_fd, by_link, ret);
	return err;
}

/* libdebuginfod calls this about every second, and more often while bytes arrive. */
static int keep_waiting(debuginfod_client *client, long a, long b)
{
	const struct debuginfo *debuginfo = debuginfod_get_user_data(client);

	return clock_ns(CLOCK_MONOTONIC) > debuginfo->deadline_ns;
}

static bool may_ask(struct debuginfo *debuginfo)
{
	const char *urls = getenv(DEBUGINFOD_URLS_ENV_VAR);

	if (!urls || !urls[strspn(urls, " ")] || debuginfo->stats.servers_failed ||
	    debuginfo->stats.download_ns >= ALL_MAX_NS)
		return false;
	if (!debuginfo->client) {
		debuginfo->client = debuginfod_begin();
		if (!debuginfo->client)
			return false;
		debuginfod_set_user_data(debuginfo->client, debuginfo);
		debuginfod_set_progressfn(debuginfo->client, keep_waiting);
	}
	return true;
}

static int ask_servers(struct search *search, struct image **ret)
{
	struct debuginfo *debuginfo = search->debuginfo;
	_cleanup_free_ char *path = NULL;
	uint64_t start_ns = clock_ns(CLOCK_MONOTONIC);
	int fd;

	if (!may_ask(debuginfo))
		return -ENOENT;
	debuginfo->deadline_ns = start_ns + DOWNLOAD_MAX_NS;
	debuginfo->stats.downloads++;
	fd = debuginfod_find_debuginfo(debuginfo->client, (const unsigned char *)search->build_id,
				       0, &path);
	debuginfo->stats.download_ns += clock_ns(CLOCK_MONOTONIC) - start_ns;
	if (fd >= 0)
		return accept_file(search, fd, path ? path : search->build_id, false, ret);
	/* A server that does not have the file is well; one that cannot be reached stays so. */
	if (fd != -ENOENT)
		debuginfo->stats.servers_failed = true;
	return fd == -ENOMEM ? fd : -ENOENT;
}

int debuginfo_find(struct debuginfo *debuginfo, const struct image *image, int root_fd,
		   bool download, struct image **ret)
{
	const char *path = image_path(image), *slash = strrchr(path, '/');
	_cleanup_free_ char *folder = strndup(path, slash ? slash - path : 0);
	struct search search = {
		.debuginfo = debuginfo,
		.image = image,
		.build_id = image_build_id(image),
		.folder = folder,
	};
	int err = -ENOENT;

	if (!folder)
		return -ENOMEM;
	read_link(&search);
	if (strlen(search.build_id) > 2)
		err = search_folders(&search, root_fd, false, ret);
	if (err == -ENOENT && *search.link && slash)
		err = search_folders(&search, root_fd, true, ret);
	if (err == -ENOENT && download && *search.build_id)
		err = ask_servers(&search, ret);
	if (!err)
		debuginfo->stats.found++;
	return err;
}

void debuginfo_read_stats(const struct debuginfo *debuginfo, struct debuginfo_stats *ret)
{
	*ret = debuginfo->stats;
}
