/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "proc/command.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "elf/image.h"
#include "util/limits.h"

/* The kernel follows as many. */
#define MAX_INTERPRETERS 5

void command_files_free(struct command_files *files)
{
	if (!files)
		return;
	for (size_t i = 0; i < files->count; i++)
		free(files->paths[i]);
	free(files->paths);
	free(files);
}

/* Adds the file behind path by the name that /proc/PID/maps will give it. */
static int files_add(struct command_files *files, const char *path)
{
	_cleanup_free_ char *real = realpath(path, NULL);
	char **paths;

	if (!real)
		return -errno;
	path = real;
	for (size_t i = 0; i < files->count; i++) {
		if (!strcmp(files->paths[i], path))
			return 0;
	}
	paths = reallocarray(files->paths, files->count + 1, sizeof(*paths));
	if (!paths)
		return -ENOMEM;
	files->paths = paths;
	paths[files->count++] = take_ptr(real);
	return 0;
}

static int check_program(const char *path)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	if (S_ISDIR(st.st_mode))
		return -EISDIR;
	return access(path, X_OK) ? -errno : 0;
}

/* As execvp finds it. */
static int search_path(const char *program, char **ret)
{
	_cleanup_free_ char *folders = NULL;
	const char *path = getenv("PATH");
	char *rest, *folder;
	int err, found = -ENOENT;

	if (!*program)
		return -ENOENT;
	if (strchr(program, '/')) {
		err = check_program(program);
		if (err)
			return err;
		*ret = strdup(program);
		return *ret ? 0 : -ENOMEM;
	}
	rest = folders = strdup(path ? path : "/bin:/usr/bin");
	if (!folders)
		return -ENOMEM;
	while ((folder = strsep(&rest, ":"))) {
		_cleanup_free_ char *candidate = NULL;

		if (asprintf(&candidate, "%s/%s", *folder ? folder : ".", program) < 0) {
			candidate = NULL;
			return -ENOMEM;
		}
		err = check_program(candidate);
		if (!err) {
			*ret = take_ptr(candidate);
			return 0;
		}
		if (err == -EACCES)
			found = -EACCES;
	}
	return found;
}

/* The interpreter of a script, or NULL if the file does not start with #!. */
static int read_interpreter(const char *path, char **ret)
{
	_cleanup_fclose_ FILE *file = fopen(path, "re");
	char line[256], *end;

	*ret = NULL;
	if (!file)
		return -errno;
	if (!fgets(line, sizeof(line), file) || line[0] != '#' || line[1] != '!')
		return 0;
	line[strcspn(line, "\n")] = '\0';
	char *start = line + 2 + strspn(line + 2, " \t");
	end = start + strcspn(start, " \t");
	*end = '\0';
	*ret = strdup(start);
	return *ret ? 0 : -ENOMEM;
}

/* One line of the linker's list: "\tNAME => PATH (0xADDRESS)" or "\tPATH (0xADDRESS)". */
static int add_listed(struct command_files *files, char *line)
{
	char *path = strstr(line, "=> "), *end;

	path = path ? path + 3 : line + strspn(line, " \t");
	end = strstr(path, " (0x");
	if (*path != '/' || !end)
		return 0;
	*end = '\0';
	return files_add(files, path);
}

/* Runs "INTERPRETER --list PROGRAM", which glibc's and musl's linkers both know. */
static int list_libraries(struct command_files *files, const char *interpreter, const char *program)
{
	char *const argv[] = {(char *)interpreter, "--list", (char *)program, NULL};
	_cleanup_fclose_ FILE *output = NULL;
	posix_spawn_file_actions_t actions;
	int fds[2], err, status;
	char *line = NULL;
	size_t size = 0;
	pid_t pid;

	if (pipe2(fds, O_CLOEXEC))
		return -errno;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, fds[1], STDOUT_FILENO);
	posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
	posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	err = -posix_spawn(&pid, interpreter, &actions, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&actions);
	close(fds[1]);
	if (err) {
		close(fds[0]);
		return err;
	}
	output = fdopen(fds[0], "r");
	if (!output) {
		err = -errno;
		close(fds[0]);
	}
	while (output && !err && getline(&line, &size, output) > 0)
		err = add_listed(files, line);
	free(line);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	return err;
}

int command_find_files(const char *program, struct command_files **ret)
{
	struct command_files *files CLEANUP(command_files) = calloc(1, sizeof(*files));
	struct image *image CLEANUP(image) = NULL;
	_cleanup_free_ char *path = NULL;
	const char *linker;
	int fd, err;

	if (!files)
		return -ENOMEM;
	err = search_path(program, &path);
	if (err)
		return err;
	for (int i = 0;; i++) {
		char *interpreter;

		err = read_interpreter(path, &interpreter);
		if (err)
			return err;
		if (!interpreter)
			break;
		free(path);
		path = interpreter;
		if (i == MAX_INTERPRETERS)
			return -ELOOP;
		err = check_program(path);
		if (err)
			return err == -ENOENT ? -ELIBACC : err;
	}
	/* By its real name: $ORIGIN, in the paths of libraries, is that one's folder. */
	err = files_add(files, path);
	if (err)
		return err;
	free(path);
	path = strdup(files->paths[0]);
	if (!path)
		return -ENOMEM;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = image_open(fd, path, &image);
	if (err)
		return err;
	linker = image_interpreter(image);
	if (linker) {
		err = list_libraries(files, linker, path);
		if (!err)
			err = files_add(files, linker);
		if (err)
			return err;
	}
	*ret = take_ptr(files);
	return 0;
}

static void run_held(char *const argv[], int release_fd, int error_fd)
{
	sigset_t none;
	char word;
	int err;

	/* End of file: heaptap gave up, or was killed. */
	if (read(release_fd, &word, 1) != 1)
		_exit(127);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	limits_reset();
	execvp(argv[0], argv);
	err = errno;
	if (write(error_fd, &err, sizeof(err)) < 0)
		_exit(126);
	_exit(127);
}

int command_hold(char *const argv[], struct command *ret)
{
	int release[2], error[2];
	pid_t pid;

	if (pipe2(release, O_CLOEXEC))
		return -errno;
	if (pipe2(error, O_CLOEXEC)) {
		int err = -errno;

		close(release[0]);
		close(release[1]);
		return err;
	}
	pid = fork();
	if (pid == 0) {
		close(release[1]);
		close(error[0]);
		run_held(argv, release[0], error[1]);
	}
	close(release[0]);
	close(error[1]);
	if (pid < 0) {
		int err = -errno;

		close(release[1]);
		close(error[0]);
		return err;
	}
	*ret = (struct command){.pid = pid, .release_fd = release[1], .error_fd = error[0]};
	return 0;
}

int command_release(struct command *command)
{
	ssize_t size;
	int err = 0;

	if (write(command->release_fd, "", 1) != 1)
		return -errno;
	close(command->release_fd);
	command->release_fd = -1;
	do
		size = read(command->error_fd, &err, sizeof(err));
	while (size < 0 && errno == EINTR);
	close(command->error_fd);
	command->error_fd = -1;
	return size == sizeof(err) ? -err : 0;
}

void command_abandon(struct command *command)
{
	if (command->pid <= 0 || command->release_fd < 0)
		return;
	close(command->release_fd);
	close(command->error_fd);
	command->release_fd = command->error_fd = -1;
	while (waitpid(command->pid, NULL, 0) < 0 && errno == EINTR)
		;
	command->pid = 0;
}
