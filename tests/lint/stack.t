#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
#
# What the functions of a BPF program that call one another take of the 512 bytes of stack that they
# have together. Before 6.10 the verifier rounds each up to 32.
set -u
BUILD=${BUILD:-build}
# A frame of the least size below the limit: what one more takes is to be seen here first.
MAX_STACK=480

llvm-objdump -dr --no-show-raw-insn "$BUILD/heaptap.bpf.o" | perl -e '
	use strict;
	my ($max, %depth, %calls, %at, %from_stack, %deepest) = (shift);
	my ($function, $section, $number) = ("", "", 0);

	while (<>) {
		$section = $1 if /^Disassembly of section (\S+):/;
		if (/^([0-9a-f]+) <([^>]+)>:/) {
			next if $2 =~ /^LBB/;
			$function = $2;
			$depth{$function} = 0;
			$at{hex $1} = $function if $section eq ".text";
			%from_stack = ();
		}
		my ($to, $rest) = /^\s*\d+:\s+(?:([rw]\d+) )?(.*)/;
		take($1) if /\(r10 - (\d+)\)/;
		if (defined $to) {
			take($1) if $from_stack{$to} && $rest =~ /^\+= -(\d+)/;
			$from_stack{$to} = $rest eq "= r10";
		}
		$number = $1 if /(?:call|=) (-?\d+)(?: ll)?$/;
		next unless /R_BPF_64_(32|64)\s+(\S+)/;
		# A function that has no name here: by its place, in instructions or in bytes.
		push @{$calls{$function}}, $2 ne ".text" ? $2 : $1 == 32 ? ($number + 1) * 8 : $number;
	}

	sub take { $depth{$function} = $_[0] if $_[0] > $depth{$function} }

	# [bytes, functions...] of the deepest way from a function on.
	sub walk {
		my $name = shift;
		my $below = [0];

		return $deepest{$name} if $deepest{$name};
		for my $callee (@{$calls{$name} // []}) {
			my $way;
			$callee = $at{$callee} // next if $callee =~ /^\d+$/;
			next unless exists $depth{$callee};
			$way = walk($callee);
			$below = $way if $way->[0] > $below->[0];
		}
		my $own = int((($depth{$name} || 1) + 31) / 32) * 32;
		my ($sum, @rest) = @$below;
		return $deepest{$name} = [$own + $sum, "$name $own", @rest];
	}

	my ($most) = sort { $b->[0] <=> $a->[0] } map { walk($_) } sort keys %depth;
	my ($bytes, @way) = @{$most // [0]};
	my $ok = $bytes && $bytes <= $max;
	print "1..1\n";
	print $ok ? "" : "not ", "ok 1 - no chain of BPF functions takes more than $max bytes of stack\n";
	print "# $bytes of 512: ", join(" + ", @way), "\n";
	exit !$ok;
' "$MAX_STACK"
