/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "target.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>

#include "elf/symtab.h"
#include "proc/command.h"
#include "proc/maps.h"
#include "proc/process.h"
#include "util/log.h"

/* Files whose names an error message lists before it says "and N more". */
#define MAX_NAMED_FILES 4

struct target_file {
	struct image *image;
	uint64_t size;
	__u32 id;
};

struct target {
	pid_t pid;
	int pidfd;
	char comm[17];
	char **argv; /* of a command, not owned */
	struct command command;
	struct command_files *files; /* of a command */
	struct target_file *opened;  /* the program first */
	size_t opened_count;
	uint32_t probed_images;
	size_t searched;
	char searched_names[256];
};

void target_free(struct target *target)
{
	if (!target)
		return;
	command_abandon(&target->command);
	command_files_free(target->files);
	for (size_t i = 0; i < target->opened_count; i++)
		image_free(target->opened[i].image);
	free(target->opened);
	if (target->pidfd >= 0)
		close(target->pidfd);
	free(target);
}
DEFINE_CLEANUP(target, struct target *, target_free)

/*
 * From 6.11 on x86-64, a return probe returns through a system call of its own; before 6.14
 * seccomp filters saw it, and one that allows only what it knows killed the process.
 */
static bool seccomp_kills_return_probes(void)
{
	unsigned int major, minor;
	struct utsname name;

	if (uname(&name) || sscanf(name.release, "%u.%u", &major, &minor) != 2)
		return false;
	return major == 6 && minor >= 11 && minor < 14;
}

static int check_process(pid_t pid, bool force, struct process *process)
{
	int err;

	err = process_read(pid, process);
	if (err == -ESRCH)
		return log_error(0, "no process with PID %d: `ps -e` lists the running ones", pid);
	if (err)
		return log_error(err, "read /proc/%d", pid);
	if (process->thread)
		return log_error(0,
				 "%d (%s) is a thread of process %d: use -p %d, which takes in all "
				 "its threads",
				 pid, process->comm, process->tgid, process->tgid);
	if (process->kernel_thread)
		return log_error(
			0,
			"PID %d (%s) is a kernel thread and has no heap: give the PID of a "
			"user process",
			pid, process->comm);
	if (process->zombie)
		return log_error(0,
				 "PID %d (%s) is a zombie: it has exited and waits for its parent; "
				 "give the PID of a running process",
				 pid, process->comm);
	if (pid == getpid())
		return log_error(0, "PID %d is heaptap itself: give the PID of another process",
				 pid);
	if (process->seccomp_mode && seccomp_kills_return_probes() && !force)
		return log_error(
			0,
			"PID %d (%s) has a seccomp filter, and on this kernel (6.11 to 6.13) "
			"such a filter may kill the process at its first sample: use "
			"--force if the filter is known to allow the uretprobe system call",
			pid, process->comm);
	return 0;
}

static int open_process(struct target *target, pid_t pid, bool force)
{
	struct process process = {};
	int err;

	err = check_process(pid, force, &process);
	if (err)
		return err;
	target->pid = pid;
	memcpy(target->comm, process.comm, sizeof(target->comm));
	return 0;
}

static int open_command(struct target *target, char **argv)
{
	int err;

	err = command_find_files(argv[0], &target->files);
	switch (err) {
	case 0:
		break;
	case -ENOENT:
		return log_error(0,
				 "command '%s' not found: give its path, or a name that is in PATH",
				 argv[0]);
	case -ELIBACC:
		return log_error(
			0,
			"command '%s' is a script whose interpreter does not exist: see its "
			"first line",
			argv[0]);
	case -EACCES:
		return log_error(err, "command '%s' cannot be executed (chmod +x?)", argv[0]);
	case -ENOEXEC:
		return log_error(0,
				 "command '%s' is no x86-64 ELF program: heaptap can profile only "
				 "these",
				 argv[0]);
	default:
		return log_error(err, "find the files of command '%s'", argv[0]);
	}
	err = command_hold(argv, &target->command);
	if (err)
		return log_error(err, "start '%s'", argv[0]);
	target->argv = argv;
	target->pid = target->command.pid;
	snprintf(target->comm, sizeof(target->comm), "%.*s", (int)sizeof(target->comm) - 2,
		 strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0]);
	return 0;
}

int target_open(pid_t pid, char **command, bool force, struct target **ret)
{
	struct target *target CLEANUP(target) = calloc(1, sizeof(*target));
	int err;

	if (!target)
		return log_error(ENOMEM, "open the target");
	target->pidfd = -1;
	target->command.release_fd = -1;
	err = command ? open_command(target, command) : open_process(target, pid, force);
	if (err)
		return err;
	target->pidfd = syscall(SYS_pidfd_open, target->pid, 0);
	if (target->pidfd < 0)
		return log_error(errno, "open PID %d (%s)", target->pid, target->comm);
	*ret = take_ptr(target);
	return 0;
}

static void log_points(const struct image *image, const struct probe_points *points)
{
	for (size_t i = 0; i < points->count; i++) {
		const struct probe_point *point = &points->entries[i];

		log_verbose("Probe point: %s %s+%llu%s%s", image_path(image), point->name,
			    (unsigned long long)(point->spec.offset - point->entry_offset),
			    point->why_entry ? ": the entry, as " : "",
			    point->why_entry ? point->why_entry : "");
	}
}

static void note_searched(struct target *target, const char *path)
{
	size_t length = strlen(target->searched_names);

	if (target->searched++ < MAX_NAMED_FILES)
		snprintf(target->searched_names + length, sizeof(target->searched_names) - length,
			 "%s%s", length ? ", " : "", path);
}

/* Places the probes of one image, if it has an allocator. */
static int attach_image(struct target *target, struct kernel *kernel, struct attach *attach,
			struct image *image)
{
	struct probe_points *points CLEANUP(probe_points) = NULL;
	struct symtab *symtab CLEANUP(symtab) = NULL;
	int err;

	note_searched(target, image_path(image));
	err = symtab_load(image, &symtab);
	if (err == -ENOENT || err == -ENOEXEC)
		return 0;
	if (!err)
		err = probe_points_find(image, symtab, &points);
	if (err)
		return log_error(err, "search '%s' for an allocator", image_path(image));
	if (!points->count)
		return 0;
	if (target->probed_images == PROBE_MAX_IMAGES) {
		log_warning("more than %d files with allocators: '%s' is not probed",
			    PROBE_MAX_IMAGES, image_path(image));
		return 0;
	}
	for (size_t i = 0; i < points->count; i++)
		points->entries[i].spec.image = target->probed_images;
	log_points(image, points);
	err = kernel_set_nested_calls(kernel, target->probed_images, &points->nested);
	if (!err)
		err = attach_points(attach, image_fd(image), points);
	if (err == -ESRCH)
		return log_error(0, "PID %d (%s) exited before the probes were placed", target->pid,
				 target->comm);
	if (err)
		return log_error(err, "place probes in '%s'", image_path(image));
	target->probed_images++;
	return 0;
}

/* Opens a file of the target; takes the descriptor over. */
static int open_file(struct target *target, int fd, const char *path)
{
	struct target_file *opened;
	struct image *image;
	struct stat st;
	int err;

	err = image_open(fd, path, &image);
	if (err == -ENOMEM)
		return log_error(err, "open '%s'", path);
	/* Not everything executable is an ELF file; frames in it keep the file's name. */
	if (err)
		return 0;
	opened = reallocarray(target->opened, target->opened_count + 1, sizeof(*opened));
	if (!opened) {
		image_free(image);
		return log_error(ENOMEM, "open '%s'", path);
	}
	target->opened = opened;
	opened[target->opened_count++] = (struct target_file){
		.image = image,
		.size = fstat(image_fd(image), &st) ? 0 : st.st_size,
	};
	return 0;
}

static int open_command_files(struct target *target)
{
	int err = 0;

	for (size_t i = 0; i < target->files->count && !err; i++) {
		const char *path = target->files->paths[i];
		int fd = open(path, O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return log_error(errno, "open '%s'", path);
		err = open_file(target, fd, path);
	}
	return err;
}

/* Whether an earlier executable mapping is of the same file. */
static bool seen_before(const struct maps *maps, size_t index)
{
	const struct mapping *mapping = &maps->entries[index];

	for (size_t i = 0; i < index; i++) {
		const struct mapping *other = &maps->entries[i];

		if (other->executable && other->inode == mapping->inode &&
		    other->dev_major == mapping->dev_major &&
		    other->dev_minor == mapping->dev_minor)
			return true;
	}
	return false;
}

/* The path of the program itself, without the mark of a deleted file. */
static bool read_exe(pid_t pid, char *path, size_t size)
{
	static const char deleted[] = " (deleted)";
	char link[64];
	ssize_t length;

	snprintf(link, sizeof(link), "/proc/%d/exe", pid);
	length = readlink(link, path, size - 1);
	if (length < 0)
		return false;
	path[length] = '\0';
	if (length > (ssize_t)sizeof(deleted) - 1 &&
	    !strcmp(path + length - (sizeof(deleted) - 1), deleted))
		path[length - (sizeof(deleted) - 1)] = '\0';
	return true;
}

static int open_process_files(struct target *target, const struct maps *maps)
{
	char exe[4096] = "";
	int err = 0;

	read_exe(target->pid, exe, sizeof(exe));
	/* The program first: profiles name it as their main binary. */
	for (int program = 1; program >= 0; program--) {
		for (size_t i = 0; i < maps->count && !err; i++) {
			const struct mapping *mapping = &maps->entries[i];
			int fd;

			if (!mapping->executable || !mapping->inode || seen_before(maps, i) ||
			    (strcmp(mapping->path, exe) == 0) != program)
				continue;
			fd = maps_open_file(target->pid, mapping);
			if (fd < 0) {
				log_warning("'%s' cannot be opened (%s): an allocator in it is not "
					    "seen",
					    mapping->path, strerror(-fd));
				continue;
			}
			err = open_file(target, fd, mapping->path);
		}
	}
	return err;
}

static int by_size(const void *a, const void *b)
{
	const struct target_file *x = *(const struct target_file *const *)a;
	const struct target_file *y = *(const struct target_file *const *)b;

	return (x->size > y->size) - (x->size < y->size);
}

/* Publishes the tables of all files, so that the first stack finds them; small files first. */
static int build_tables(struct target *target, struct kernel *kernel, struct tables *tables)
{
	const size_t count = target->opened_count;
	_cleanup_free_ struct target_file **order = calloc(count + 1, sizeof(*order));
	_cleanup_free_ int *fds = calloc(count + 1, sizeof(*fds));
	_cleanup_free_ __u32 *ids = calloc(count + 1, sizeof(*ids));
	int err;

	if (!order || !fds || !ids)
		return log_error(ENOMEM, "build unwind tables");
	for (size_t i = 0; i < count; i++) {
		order[i] = &target->opened[i];
		fds[i] = image_fd(target->opened[i].image);
	}
	err = kernel_identify(kernel, fds, count, ids);
	if (err)
		return log_error(err, "identify the target's files");
	for (size_t i = 0; i < count; i++)
		target->opened[i].id = ids[i];
	qsort(order, count, sizeof(*order), by_size);
	for (size_t i = 0; i < count; i++) {
		if (!order[i]->id)
			continue;
		err = tables_build(tables, order[i]->id, order[i]->image);
		if (err)
			log_warning(
				"no unwind table for '%s' (%s): stacks through it are cut there",
				image_path(order[i]->image), strerror(-err));
	}
	return 0;
}

/* The images keep the files open. One without an id is opened again when it is met. */
static int give_files(struct target *target, struct images *images, const struct maps *maps)
{
	int err;

	for (size_t i = 0; i < target->opened_count; i++) {
		struct target_file *file = &target->opened[i];

		if (!file->id)
			continue;
		err = images_add_file(images, file->id, take_ptr(file->image));
		if (err)
			return log_error(err, "keep the target's files");
	}
	if (maps)
		images_locate(images, maps);
	return 0;
}

int target_attach(struct target *target, struct kernel *kernel, struct attach *attach,
		  struct tables *tables, struct images *images)
{
	struct maps *maps CLEANUP(maps) = NULL;
	int err;

	if (target->argv) {
		err = open_command_files(target);
	} else {
		err = maps_read(target->pid, &maps);
		if (err == -ESRCH)
			return log_error(0, "PID %d (%s) exited before the probes were placed",
					 target->pid, target->comm);
		if (err)
			return log_error(err, "read /proc/%d/maps", target->pid);
		err = open_process_files(target, maps);
	}
	if (!err)
		err = build_tables(target, kernel, tables);
	for (size_t i = 0; i < target->opened_count && !err; i++)
		err = attach_image(target, kernel, attach, target->opened[i].image);
	if (!err)
		err = give_files(target, images, maps);
	if (err || target->probed_images)
		return err;
	if (target->searched > MAX_NAMED_FILES)
		return log_error(
			0,
			"no allocator found in %d (%s): neither %s nor the %zu files after "
			"them have symbols for malloc and free; a statically linked "
			"program must not be stripped",
			target->pid, target->comm, target->searched_names,
			target->searched - MAX_NAMED_FILES);
	return log_error(0,
			 "no allocator found in %d (%s): %s has no symbols for malloc and free; a "
			 "statically linked program must not be stripped",
			 target->pid, target->comm, target->searched_names);
}

int target_start(struct target *target)
{
	int err;

	if (!target->argv)
		return 0;
	err = command_release(&target->command);
	return err ? log_error(err, "execute '%s'", target->argv[0]) : 0;
}

pid_t target_pid(const struct target *target)
{
	return target->pid;
}

const char *target_comm(const struct target *target)
{
	return target->comm;
}

int target_fd(const struct target *target)
{
	return target->pidfd;
}

void target_report_end(struct target *target)
{
	int status;
	pid_t pid;

	if (!target->argv)
		return;
	do
		pid = waitpid(target->pid, &status, WNOHANG);
	while (pid < 0 && errno == EINTR);
	if (pid == 0)
		log_info("%s (PID %d) goes on running", target->argv[0], target->pid);
	else if (pid == target->pid && WIFSIGNALED(status))
		log_info("%s was killed by signal %d (%s)", target->argv[0], WTERMSIG(status),
			 strsignal(WTERMSIG(status)));
	else if (pid == target->pid)
		log_info("%s exited with status %d", target->argv[0], WEXITSTATUS(status));
}
