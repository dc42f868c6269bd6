package protocol

import "testing"

// TestMetadataVersions has lines of what Apache Kafka 4.4.0's MetadataVersion
// prints of itself.
func TestMetadataVersions(t *testing.T) {
	for _, c := range []struct {
		level              MetadataVersion
		name               string
		fetch, listOffsets int16
	}{
		{7, "3.3-IV3", 13, 7}, {8, "3.4-IV0", 13, 7}, {9, "3.5-IV0", 14, 8}, {10, "3.5-IV1", 15, 8}, {18, "3.7-IV3", 15, 8},
		{19, "3.7-IV4", 16, 8}, {20, "3.8-IV0", 16, 8}, {21, "3.9-IV0", 17, 9}, {24, "4.0-IV2", 17, 9}, {25, "4.0-IV3", 17, 10},
		{26, "4.1-IV0", 17, 10}, {27, "4.1-IV1", 18, 10}, {28, "4.2-IV0", 18, 10}, {29, "4.2-IV1", 18, 11}, {33, "4.4-IV2", 18, 11},
	} {
		if got := c.level.String(); got != c.name {
			t.Errorf("level %d is %q, want %q", c.level, got, c.name)
		}
		if v, ok := ParseMetadataVersion(c.name); !ok || v != c.level {
			t.Errorf("%q parses to %d, %v, want %d", c.name, v, ok, c.level)
		}
		if f, l := c.level.FetchVersion(), c.level.ListOffsetsVersion(); f != c.fetch || l != c.listOffsets {
			t.Errorf("level %d: Fetch %d and ListOffsets %d, want %d and %d", c.level, f, l, c.fetch, c.listOffsets)
		}
	}
	if v, ok := ParseMetadataVersion("3.7"); !ok || v != 19 {
		t.Errorf(`"3.7" parses to %d, %v, want 19`, v, ok)
	}
	for _, name := range []string{"", "3", "3.3-IV2", "4.5-IV0", "9.9"} {
		if v, ok := ParseMetadataVersion(name); ok {
			t.Errorf("%q parses to %d, want it refused", name, v)
		}
	}
	if MetadataVersion(6).Supported() || MetadataVersion(34).Supported() || MetadataVersion(34).String() != "" {
		t.Error("levels 6 and 34 are not supported")
	}
}
