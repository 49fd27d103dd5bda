/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "profile/naming.h"

#include <errno.h>

struct naming {
	const struct profile *from;
	struct profile *to;
	struct image *const *images;
	struct symbolizer *symbolizer;
	struct naming_counts *counts;
	uint32_t *locations; /* new ids by old index */
};

/* How much is known of a location. */
enum knowledge {
	KNOWN_NOTHING,
	KNOWN_NAME,
	KNOWN_LINE,
};

static uint32_t copy_string(const struct naming *naming, uint32_t string)
{
	return profile_string(naming->to, naming->from->strings[string]);
}

static enum knowledge location_knowledge(const struct profile_location *location)
{
	for (size_t i = 0; i < location->line_count; i++) {
		if (location->lines[i].line)
			return KNOWN_LINE;
	}
	return location->line_count ? KNOWN_NAME : KNOWN_NOTHING;
}

static enum knowledge frame_knowledge(const struct symbolized_frame *frame)
{
	for (size_t i = 0; i < frame->line_count; i++) {
		if (frame->lines[i].line)
			return KNOWN_LINE;
	}
	return frame->line_count ? KNOWN_NAME : KNOWN_NOTHING;
}

static void copy_header(struct naming *naming)
{
	const struct profile *from = naming->from;
	struct profile *to = naming->to;

	for (size_t i = 0; i < from->sample_type_count; i++)
		profile_add_sample_type(to, from->strings[from->sample_types[i].type],
					from->strings[from->sample_types[i].unit]);
	for (size_t i = 0; i < from->comment_count; i++)
		profile_add_comment(to, from->strings[from->comments[i]]);
	to->period_type.type = copy_string(naming, from->period_type.type);
	to->period_type.unit = copy_string(naming, from->period_type.unit);
	to->period = from->period;
	to->time_nanos = from->time_nanos;
	to->duration_nanos = from->duration_nanos;
	to->drop_frames = copy_string(naming, from->drop_frames);
	to->keep_frames = copy_string(naming, from->keep_frames);
	to->default_sample_type = copy_string(naming, from->default_sample_type);
	for (size_t i = 0; i < from->mapping_count; i++) {
		struct profile_mapping mapping = from->mappings[i];

		mapping.filename = copy_string(naming, mapping.filename);
		mapping.build_id = copy_string(naming, mapping.build_id);
		profile_add_mapping(to, &mapping);
	}
}

static int copy_location(struct naming *naming, const struct profile_location *location,
			 uint32_t *ret)
{
	_cleanup_free_ struct profile_line *lines =
		calloc(location->line_count + 1, sizeof(*lines));

	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < location->line_count; i++) {
		lines[i] = location->lines[i];
		if (lines[i].function) {
			struct profile_function function =
				naming->from->functions[lines[i].function - 1];

			function.name = copy_string(naming, function.name);
			function.system_name = copy_string(naming, function.system_name);
			function.filename = copy_string(naming, function.filename);
			lines[i].function = profile_add_function(naming->to, &function);
		}
	}
	*ret = profile_add_location(naming->to, location->mapping, location->address, lines,
				    location->line_count);
	return 0;
}

static int name_location(struct naming *naming, const struct profile_location *location,
			 const struct symbolized_frame *frame, uint32_t *ret)
{
	struct profile_mapping *mapping = &naming->to->mappings[location->mapping - 1];
	_cleanup_free_ struct profile_line *lines = calloc(frame->line_count, sizeof(*lines));

	if (!lines)
		return -ENOMEM;
	for (size_t i = 0; i < frame->line_count; i++) {
		const struct symbolized_line *line = &frame->lines[i];
		struct profile_function function = {
			.name = profile_string(naming->to, line->name),
			.system_name = profile_string(naming->to, line->system_name),
			.filename = profile_string(naming->to, line->filename),
			.start_line = line->start_line,
		};

		lines[i].function = profile_add_function(naming->to, &function);
		lines[i].line = line->line;
		mapping->has_functions |= function.name != 0;
		mapping->has_filenames |= function.filename != 0;
		mapping->has_line_numbers |= line->line != 0;
	}
	mapping->has_inline_frames |= frame->line_count > 1;
	*ret = profile_add_location(naming->to, location->mapping, location->address, lines,
				    frame->line_count);
	return 0;
}

static int look_up(struct naming *naming, const struct profile_location *location,
		   struct symbolized_frame *ret)
{
	const struct profile_mapping *mapping = &naming->from->mappings[location->mapping - 1];
	struct image *image = naming->images[location->mapping - 1];

	*ret = (struct symbolized_frame){};
	if (!image || location->address < mapping->start)
		return 0;
	return symbolizer_lookup(naming->symbolizer, image,
				 location->address - mapping->start + mapping->offset, ret);
}

static int add_location(struct naming *naming, const struct profile_location *location,
			uint32_t *ret)
{
	enum knowledge before = location_knowledge(location), found;
	struct naming_counts *counts;
	struct symbolized_frame frame;
	int err;

	if (!location->mapping)
		return copy_location(naming, location, ret);
	err = look_up(naming, location, &frame);
	if (err)
		return err;
	found = frame_knowledge(&frame);
	counts = &naming->counts[location->mapping - 1];
	counts->locations++;
	counts->named_before += before != KNOWN_NOTHING;
	counts->lines_before += before == KNOWN_LINE;
	counts->named += before != KNOWN_NOTHING || found != KNOWN_NOTHING;
	counts->lines += before == KNOWN_LINE || found == KNOWN_LINE;
	return found > before ? name_location(naming, location, &frame, ret)
			      : copy_location(naming, location, ret);
}

static int copy_sample(struct naming *naming, const struct profile_sample *sample)
{
	_cleanup_free_ uint32_t *locations = calloc(sample->location_count + 1, sizeof(*locations));
	_cleanup_free_ struct profile_label *labels =
		calloc(sample->label_count + 1, sizeof(*labels));

	if (!locations || !labels)
		return -ENOMEM;
	for (size_t i = 0; i < sample->location_count; i++)
		locations[i] = naming->locations[sample->locations[i] - 1];
	for (size_t i = 0; i < sample->label_count; i++) {
		labels[i] = sample->labels[i];
		labels[i].key = copy_string(naming, labels[i].key);
		labels[i].string = copy_string(naming, labels[i].string);
		labels[i].unit = copy_string(naming, labels[i].unit);
	}
	profile_add_sample(naming->to, locations, sample->location_count, sample->values, labels,
			   sample->label_count);
	return 0;
}

int naming_apply(const struct profile *profile, struct image *const *images,
		 struct symbolizer *symbolizer, struct naming_counts *counts, struct profile **ret)
{
	struct profile *to CLEANUP(profile) = NULL;
	_cleanup_free_ uint32_t *locations =
		calloc(profile->location_count + 1, sizeof(*locations));
	struct naming naming = {profile, NULL, images, symbolizer, counts, locations};
	int err = locations ? profile_new(&to) : -ENOMEM;

	if (err)
		return err;
	naming.to = to;
	copy_header(&naming);
	err = profile_error(to);
	for (size_t i = 0; i < profile->location_count && !err; i++) {
		err = add_location(&naming, &profile->locations[i], &locations[i]);
		if (!err)
			err = profile_error(to);
	}
	for (size_t i = 0; i < profile->sample_count && !err; i++)
		err = copy_sample(&naming, &profile->samples[i]);
	if (!err)
		err = profile_error(to);
	if (err)
		return err;
	*ret = take_ptr(to);
	return 0;
}
