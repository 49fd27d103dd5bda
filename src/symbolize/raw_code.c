/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "symbolize/raw_code.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "elf/symtab.h"
#include "proc/maps.h"
#include "proc/process.h"
#include "symbolize/perfmap.h"
#include "util/root.h"

/* It has two or three pages. */
#define VDSO_MAX_SIZE  (64u << 10)
#define AUXV_MAX_PAIRS 64

struct vdso {
	uint64_t base; /* 0: none yet */
	struct raw_mapping mapping;
	struct image *image;
	struct symtab *symtab;
	struct vdso *older; /* of the program before the exec */
};

struct raw_code {
	pid_t pid;
	int root_fd;
	struct vdso *vdso;
	struct perfmap *perfmap;
	int perfmap_fd;
	bool perfmap_stale;
};

int raw_code_new(pid_t pid, struct raw_code **ret)
{
	struct raw_code *code CLEANUP(raw_code) = calloc(1, sizeof(*code));
	int err;

	if (!code)
		return -ENOMEM;
	code->pid = pid;
	code->root_fd = code->perfmap_fd = -1;
	err = perfmap_new(&code->perfmap);
	if (err)
		return err;
	*ret = take_ptr(code);
	return 0;
}

static void vdso_free(struct vdso *vdso)
{
	while (vdso) {
		struct vdso *older = vdso->older;

		symtab_free(vdso->symtab);
		image_free(vdso->image);
		free(vdso);
		vdso = older;
	}
}
DEFINE_CLEANUP(vdso, struct vdso *, vdso_free)

static void replace_fd(int *fd, int new)
{
	if (new < 0)
		return;
	if (*fd >= 0)
		close(*fd);
	*fd = new;
}

void raw_code_free(struct raw_code *code)
{
	if (!code)
		return;
	vdso_free(code->vdso);
	perfmap_free(code->perfmap);
	if (code->root_fd >= 0)
		close(code->root_fd);
	if (code->perfmap_fd >= 0)
		close(code->perfmap_fd);
	free(code);
}

/* Where the kernel put the vdso; 0 if it did not, or if the process is gone. */
static uint64_t read_vdso_base(pid_t pid)
{
	Elf64_auxv_t auxv[AUXV_MAX_PAIRS];
	_cleanup_close_ int fd = -1;
	char path[64];
	ssize_t size;

	snprintf(path, sizeof(path), "/proc/%d/auxv", pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	size = fd >= 0 ? read(fd, auxv, sizeof(auxv)) : 0;
	for (ssize_t i = 0; i < size / (ssize_t)sizeof(*auxv); i++) {
		if (auxv[i].a_type == AT_SYSINFO_EHDR)
			return auxv[i].a_un.a_val;
	}
	return 0;
}

/* Copies the vdso out of the process's memory into a file, and opens that. */
static int open_vdso(pid_t pid, uint64_t start, size_t size, struct image **ret)
{
	_cleanup_free_ uint8_t *bytes = malloc(VDSO_MAX_SIZE);
	_cleanup_close_ int memory = -1, fd = -1;
	char path[64];

	if (!bytes)
		return -ENOMEM;
	snprintf(path, sizeof(path), "/proc/%d/mem", pid);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	fd = memfd_create("vdso", MFD_CLOEXEC);
	if (memory < 0 || fd < 0)
		return -errno;
	if (size > VDSO_MAX_SIZE || pread(memory, bytes, size, start) != (ssize_t)size ||
	    write(fd, bytes, size) != (ssize_t)size)
		return -EIO;
	return image_open(take_fd(fd), "[vdso]", ret);
}

static int load_vdso(struct raw_code *code, uint64_t base)
{
	struct vdso *vdso CLEANUP(vdso) = calloc(1, sizeof(*vdso));
	struct maps *maps CLEANUP(maps) = NULL;
	const struct mapping *mapping;
	int err;

	if (!vdso)
		return -ENOMEM;
	err = maps_read(code->pid, &maps);
	mapping = err ? NULL : maps_find(maps, base);
	/* A process may say what it likes about its memory; only the kernel calls it so. */
	if (!mapping || strcmp(mapping->path, "[vdso]"))
		return err == -ENOMEM ? err : 0;
	err = open_vdso(code->pid, mapping->start, mapping->end - mapping->start, &vdso->image);
	if (!err)
		err = symtab_load_names(vdso->image, NULL, 0, &vdso->symtab);
	if (err)
		return err == -ENOMEM ? err : 0;
	vdso->base = base;
	vdso->mapping = (struct raw_mapping){
		.start = mapping->start,
		.end = mapping->end,
		.name = "[vdso]",
		.build_id = image_build_id(vdso->image),
	};
	vdso->older = code->vdso;
	code->vdso = take_ptr(vdso);
	return 0;
}

/* Others may write to /tmp: the file must be the process's own, or root's. */
static bool is_trusted(const struct process *process, int fd)
{
	struct stat file;

	return !fstat(fd, &file) && S_ISREG(file.st_mode) &&
	       (file.st_uid == process->euid || !file.st_uid);
}

static void open_perfmap(struct raw_code *code)
{
	struct process process;
	_cleanup_close_ int fd = -1;
	char path[64];

	code->perfmap_stale = true;
	if (code->root_fd < 0 || process_read(code->pid, &process))
		return;
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", process.ns_tgid);
	fd = root_open_file(code->root_fd, path);
	if (fd >= 0 && is_trusted(&process, fd))
		replace_fd(&code->perfmap_fd, take_fd(fd));
}

int raw_code_refresh(struct raw_code *code)
{
	char path[64];
	uint64_t base;

	snprintf(path, sizeof(path), "/proc/%d/root", code->pid);
	replace_fd(&code->root_fd, root_open(path));
	open_perfmap(code);
	base = read_vdso_base(code->pid);
	return base && (!code->vdso || code->vdso->base != base) ? load_vdso(code, base) : 0;
}

int raw_code_lookup(struct raw_code *code, uint64_t address, struct raw_name *ret)
{
	const struct vdso *vdso = code->vdso;
	const struct symbol *symbol = NULL;
	uint64_t vaddr;
	int err = 0;

	*ret = (struct raw_name){};
	if (vdso && address >= vdso->mapping.start && address < vdso->mapping.end) {
		if (!image_offset_to_vaddr(vdso->image, address - vdso->mapping.start, &vaddr))
			symbol = symtab_lookup(vdso->symtab, vaddr);
		ret->name = symbol ? symbol->name : NULL;
		ret->mapping = &vdso->mapping;
		return 0;
	}
	if (code->perfmap_fd < 0)
		return 0;
	if (code->perfmap_stale)
		err = perfmap_read(code->perfmap, code->perfmap_fd);
	code->perfmap_stale = false;
	ret->name = perfmap_lookup(code->perfmap, address);
	return err == -ENOMEM ? err : 0;
}

int raw_code_root(const struct raw_code *code)
{
	return code->root_fd;
}

size_t raw_code_malformed(const struct raw_code *code)
{
	return perfmap_malformed(code->perfmap);
}
