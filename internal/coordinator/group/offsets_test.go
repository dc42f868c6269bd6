package group

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// commitByID commits t-0 for group g, as of the topic of an id, and returns the code.
func commitByID(w *world, id uuid.UUID, at int64) string {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version, r.Group, r.Generation = 10, "g", -1
	r.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: at}}}}
	_, answers := w.do(r, "c")
	return code(answers[0].Response.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode)
}

// fetched is the offset of t-0, for who knows the topic by an id, or by its name if that is zero.
func fetched(w *world, id uuid.UUID) int64 {
	r := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.Topics = "g", []kmsg.OffsetFetchRequestGroupTopic{{Topic: "t", TopicID: id, Partitions: []int32{0}}}
	r.Version, r.Groups = 10, append(r.Groups, g)
	_, answers := w.do(r, "c")
	return answers[0].Response.(*kmsg.OffsetFetchResponse).Groups[0].Topics[0].Partitions[0].Offset
}

// TestOffsetsOfATopicCreatedAgain: the offset of a topic is not that of its namesake, even if the coordinator did not hear that the first was
// deleted, or heard it late.
func TestOffsetsOfATopicCreatedAgain(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	first, second := w.ofTopic["t"], uuid.UUID{0: 't', 15: 77}
	want := func(what string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %v, want %v", what, got, want)
		}
	}
	want("commit", commitByID(w, first, 5), "ok")
	want("commit for a topic that is not known here yet", commitByID(w, second, 6), "UNKNOWN_TOPIC_ID")

	d := metadata.NewDelta(w.image)
	for _, m := range []records.Message{
		&records.RemoveTopicRecord{TopicID: first}, &records.TopicRecord{Name: "t", TopicID: second},
		&records.PartitionRecord{TopicID: second, Replicas: []int32{1}, ISR: []int32{1}, Directories: []uuid.UUID{{15: 200}}, Leader: 1},
	} {
		if err := d.Replay(m); err != nil {
			t.Fatal(err)
		}
	}
	w.image = d.Apply(w.image.Offset+1, 1)
	w.take(w.machine.SetImage(w.now, w.image, nil))
	want("fetch by the new id", fetched(w, second), int64(-1))
	want("fetch by the old id", fetched(w, first), int64(5))
	want("fetch by name", fetched(w, uuid.Zero), int64(5)) // as Apache has it: who goes by the name cannot know
	want("commit for a topic that is gone", commitByID(w, first, 6), "UNKNOWN_TOPIC_ID")

	want("commit", commitByID(w, second, 7), "ok")
	w.take(w.machine.SetImage(w.now, w.image, []DeletedTopic{{first, "t"}}))
	want("fetch after the news of the first", fetched(w, second), int64(7))
	w.take(w.machine.SetImage(w.now, w.image, []DeletedTopic{{second, "t"}}))
	want("fetch after that of the second", fetched(w, second), int64(-1))
	w.checkReplay()
}

// TestDeletedTopicInATransaction: what an open transaction has of a topic goes with it, and then keeps the group no more.
func TestDeletedTopicInATransaction(t *testing.T) {
	w := newWorld(t)
	w.topic("t", 1)
	v := records.NewOffsetCommitValue()
	v.Offset, v.TopicID = 5, w.ofTopic["t"]
	w.machine.Replay(&records.OffsetCommitKey{Group: "g", Topic: "t"}, v, 9)
	if !w.machine.offsets.isPending(offsetKey{"g", "t", 0}) {
		t.Fatal("nothing is pending")
	}
	out := w.machine.SetImage(w.now, w.image, []DeletedTopic{{uuid.UUID{1}, "t"}})
	if len(out.Records) != 0 {
		t.Errorf("the end of another t made records: %+v", out.Records)
	}
	w.topic("t", 0)
	if w.machine.offsets.isPending(offsetKey{"g", "t", 0}) || len(w.machine.offsets.open) != 0 {
		t.Errorf("the transaction still has offsets: %+v", w.machine.offsets.open)
	}
	w.machine.ReplayMarker(9, true)
	if got := fetched(w, uuid.Zero); got != -1 {
		t.Errorf("committed offset %d of a topic that is gone", got)
	}
}
