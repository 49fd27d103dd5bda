/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Which file backs an address: a walk of mm->mm_mt, the maple tree of mappings, without locks.
 *
 * bpf_find_vma() fails whenever another thread holds mmap_lock. The walk may meet a node that is
 * being replaced; whatever it finds is checked against the address, and tried again. Nodes are
 * freed after an RCU grace period, which these programs hold off.
 */
#ifndef HEAPTAP_VMA_BPF_H
#define HEAPTAP_VMA_BPF_H

#include "vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>

#define MAPLE_LEAF_64	    1
#define MAPLE_RANGE_64	    2
#define MAPLE_ARANGE_64	    3
#define MAPLE_MAX_DEPTH	    8
#define MAPLE_64_PIVOTS	    15
#define MAPLE_ARANGE_PIVOTS 9

#define VM_EXEC	  0x4
#define VM_SHARED 0x8

/* One mapping as a walk needs it. */
struct vma {
	__u64 start;
	__u64 end;
	__u64 offset; /* in the file, of start */
	__u32 image;  /* 0: no file, or not executable */
	__u32 executable;
};

/* Of a node; scratch space of a search. */
struct maple_pivots {
	unsigned long last[MAPLE_64_PIVOTS];
};

/* The slot of a maple node that covers address. */
static __always_inline __u64 maple_slot(const struct maple_node *node, __u32 type, __u64 address,
					struct maple_pivots *pivots)
{
	void *slot = NULL;
	__u32 count, i;

	if (type == MAPLE_ARANGE_64) {
		count = MAPLE_ARANGE_PIVOTS;
		bpf_core_read(pivots->last, sizeof(unsigned long) * MAPLE_ARANGE_PIVOTS,
			      &node->ma64.pivot);
	} else {
		count = MAPLE_64_PIVOTS;
		bpf_core_read(pivots->last, sizeof(pivots->last), &node->mr64.pivot);
	}
	/* A pivot is the last index of its slot; 0 past the first means that the node ends here. */
	for (i = 0; i < MAPLE_64_PIVOTS; i++) {
		if (i >= count || address <= pivots->last[i] || (i && !pivots->last[i]))
			break;
	}
	if (type == MAPLE_ARANGE_64)
		bpf_probe_read_kernel(&slot, sizeof(slot),
				      (char *)node +
					      bpf_core_field_offset(struct maple_node, ma64.slot) +
					      i * sizeof(void *));
	else
		bpf_probe_read_kernel(&slot, sizeof(slot),
				      (char *)node +
					      bpf_core_field_offset(struct maple_node, mr64.slot) +
					      i * sizeof(void *));
	return (__u64)slot;
}

/*
 * The address of the vm_area_struct whose range may cover address, or 0. A global function: it is
 * verified once, not per search and attempt.
 */
__noinline __u64 vma_walk(__u64 mm, __u64 address, struct maple_pivots *pivots)
{
	__u64 entry = (__u64)BPF_CORE_READ((struct mm_struct *)mm, mm_mt.ma_root);
	__u32 type;
	int level;

	if (!pivots)
		return 0;
	/* The root entry is marked as a node, or is the one mapping itself. */
	if ((entry & 3) != 2 || entry < 4096)
		return entry;
	for (level = 0; level < MAPLE_MAX_DEPTH; level++) {
		type = entry >> 3 & 15;
		entry = maple_slot((struct maple_node *)(entry & ~255ull), type, address, pivots);
		if (type <= MAPLE_LEAF_64 || entry < 4096)
			return entry;
	}
	return 0;
}

/* A walk fails while the tree is changed under it. */
#define VMA_ATTEMPTS 4

/* The mapping of an address, and its range; NULL if none was found in so many attempts. */
static __always_inline struct vm_area_struct *vma_find(struct mm_struct *mm, __u64 address,
						       struct maple_pivots *pivots,
						       __u64 *ret_start, __u64 *ret_end)
{
	struct vm_area_struct *area;
	int attempt;

	for (attempt = 0; attempt < VMA_ATTEMPTS; attempt++) {
		area = (struct vm_area_struct *)vma_walk((__u64)mm, address, pivots);
		*ret_start = BPF_CORE_READ(area, vm_start);
		*ret_end = BPF_CORE_READ(area, vm_end);
		if (area && address >= *ret_start && address < *ret_end)
			return area;
	}
	return NULL;
}

#endif
