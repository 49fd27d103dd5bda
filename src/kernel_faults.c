/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A period of 1, and no memory for samples: the programs see every fault and choose. The kernel
 * throttles a software event only if one count makes several samples, which a fault does not.
 */
#include "kernel_faults.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Before a fault, and after it: PAGE_FAULTS itself is counted before. */
#define EVENTS_PER_CPU 3

struct kernel_faults {
	size_t count;
	int fds[]; /* of the CPUs that were online */
};

static int open_event(int cpu, __u64 config, int program)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = PERF_TYPE_SOFTWARE,
		.config = config,
		.sample_period = 1,
		/* Until the program is there, which compares its runs with the event's count. */
		.disabled = 1,
	};
	_cleanup_close_ int fd =
		syscall(SYS_perf_event_open, &attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (ioctl(fd, PERF_EVENT_IOC_SET_BPF, program) || ioctl(fd, PERF_EVENT_IOC_ENABLE, 0))
		return -EOPNOTSUPP;
	return take_fd(fd);
}

int kernel_faults_open(const struct fault_parts *parts, struct kernel_faults **ret)
{
	/* What comes after a fault first: a start without an end is only forgotten. */
	const struct {
		__u64 config;
		int program;
	} events[EVENTS_PER_CPU] = {
		{PERF_COUNT_SW_PAGE_FAULTS_MIN, parts->minor},
		{PERF_COUNT_SW_PAGE_FAULTS_MAJ, parts->major},
		{PERF_COUNT_SW_PAGE_FAULTS, parts->enter},
	};
	struct kernel_faults *faults CLEANUP(kernel_faults) = NULL;
	long cpus = sysconf(_SC_NPROCESSORS_CONF);

	faults = calloc(1, sizeof(*faults) + cpus * EVENTS_PER_CPU * sizeof(*faults->fds));
	if (!faults)
		return -ENOMEM;
	for (int i = 0; i < EVENTS_PER_CPU; i++) {
		for (int cpu = 0; cpu < cpus; cpu++) {
			int fd = open_event(cpu, events[i].config, events[i].program);

			/* An offline CPU. */
			if (fd == -ENODEV)
				continue;
			if (fd < 0)
				return fd;
			faults->fds[faults->count++] = fd;
		}
	}
	*ret = take_ptr(faults);
	return 0;
}

void kernel_faults_close(struct kernel_faults *faults)
{
	if (!faults)
		return;
	for (size_t i = 0; i < faults->count; i++)
		close(faults->fds[i]);
	free(faults);
}

/* The physical address of an address of ours, which is there. */
static int physical_address(uint64_t address, uint64_t *ret)
{
	const uint64_t page = sysconf(_SC_PAGESIZE), present = 1ull << 63,
		       number = (1ull << 55) - 1;
	_cleanup_close_ int fd = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	uint64_t entry;

	if (fd < 0)
		return -errno;
	if (pread(fd, &entry, sizeof(entry), address / page * sizeof(entry)) != sizeof(entry))
		return -EIO;
	if (!(entry & present) || !(entry & number))
		return -EPERM;
	*ret = (entry & number) * page + address % page;
	return 0;
}

static int try_page(const struct fault_parts *parts, void *page)
{
	LIBBPF_OPTS(bpf_test_run_opts, opts);
	struct page_proof *proof = parts->proof;
	uint64_t physical = 0;
	int err;

	if (getrandom(page, sizeof(proof->words), 0) != sizeof(proof->words))
		return -errno;
	err = physical_address((uintptr_t)page, &physical);
	if (err)
		return err;
	memcpy(proof->words, page, sizeof(proof->words));
	proof->address = (uintptr_t)page;
	proof->physical = physical;
	if (bpf_prog_test_run_opts(parts->find, &opts))
		return -errno;
	return parts->tables->levels ? 0 : -EOPNOTSUPP;
}

/* Whether the machine is set to folios of a size, for anonymous memory (enabled) or shared. */
static bool has_folios(unsigned int kb, const char *setting)
{
	_cleanup_fclose_ FILE *file = NULL;
	char path[96], text[64];

	snprintf(path, sizeof(path), "/sys/kernel/mm/transparent_hugepage/hugepages-%ukB/%s", kb,
		 setting);
	file = fopen(path, "re");
	return file && fgets(text, sizeof(text), file) && !strstr(text, "[never]");
}

/*
 * Blocks that the largest folio has which one fault maps by small pages, 0 if there are none: from
 * 6.8 on, and if the machine is set to it.
 */
static __u32 folio_blocks(void)
{
	const unsigned int block_kb = PAGE_BLOCK_ENTRIES * 4;
	__u32 blocks = 0;

	for (unsigned int kb = 8; kb <= PAGE_MAX_BLOCKS * block_kb; kb *= 2) {
		if (has_folios(kb, "enabled") || has_folios(kb, "shmem_enabled"))
			blocks = kb < block_kb ? 1 : kb / block_kb;
	}
	return blocks;
}

int kernel_faults_find_tables(const struct fault_parts *parts)
{
	const size_t size = sysconf(_SC_PAGESIZE);
	int err = -EOPNOTSUPP;
	void *page = mmap(NULL, size, PROT_READ | PROT_WRITE,
			  MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (page == MAP_FAILED)
		return -errno;
	parts->tables->blocks = folio_blocks();
	/* The kernel may move the page meanwhile. */
	for (int attempt = 0; attempt < 3 && err == -EOPNOTSUPP; attempt++)
		err = try_page(parts, page);
	munmap(page, size);
	return err;
}
