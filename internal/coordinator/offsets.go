package coordinator

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/auth"
)

// The offset requests name topics, by name or since version 10 by id. Those that may not be named or are not there are
// answered here, and the rest goes to the group.

// topic finds a topic that a request names. The code says why it is not to be looked at.
func (r *request) topic(name string, id [16]byte, byID bool, op auth.Operation) (string, int16) {
	if byID {
		t := r.image.Topic(id)
		if t == nil {
			return "", kerr.UnknownTopicID.Code
		}
		name = t.Name
	}
	if !r.mayTopic(op, name) {
		return name, kerr.TopicAuthorizationFailed.Code
	}
	return name, 0
}

func (r *request) offsetCommit(req *kmsg.OffsetCommitRequest, done func(kmsg.Response)) {
	if !r.mayGroup(auth.Read, req.Group) {
		done(refusal(req, kerr.GroupAuthorizationFailed.Code))
		return
	}
	codes := make([]int16, len(req.Topics))
	sub := *req
	sub.Topics = nil
	for i := range req.Topics {
		t := req.Topics[i]
		t.Topic, codes[i] = r.topic(t.Topic, t.TopicID, req.Version >= 10, auth.Read)
		if codes[i] != 0 {
			continue
		}
		topic := r.image.TopicByName(t.Topic)
		if topic == nil {
			codes[i] = kerr.UnknownTopicOrPartition.Code
			continue
		}
		t.TopicID = topic.ID
		sub.Topics = append(sub.Topics, t)
	}
	finish := func(part *kmsg.OffsetCommitResponse) {
		resp := req.ResponseKind().(*kmsg.OffsetCommitResponse)
		for i, next := range req.Topics {
			if codes[i] == 0 {
				resp.Topics = append(resp.Topics, part.Topics[0])
				part.Topics = part.Topics[1:]
				continue
			}
			rt := kmsg.OffsetCommitResponseTopic{Topic: next.Topic, TopicID: next.TopicID}
			for _, p := range next.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition, ErrorCode: codes[i]})
			}
			resp.Topics = append(resp.Topics, rt)
		}
		done(resp)
	}
	if len(sub.Topics) == 0 {
		finish(nil)
		return
	}
	r.submit(req.Group, &sub, func(resp kmsg.Response) { finish(resp.(*kmsg.OffsetCommitResponse)) })
}

// offsetFetch asks the partitions of the groups. Versions below 8 know one group, in another form.
func (r *request) offsetFetch(req *kmsg.OffsetFetchRequest, done func(kmsg.Response)) {
	groups := req.Groups
	if req.Version < 8 {
		one := kmsg.NewOffsetFetchRequestGroup()
		one.Group = req.Group
		if req.Topics != nil {
			one.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
		}
		for _, t := range req.Topics {
			one.Topics = append(one.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
		}
		groups = []kmsg.OffsetFetchRequestGroup{one}
	}
	g := newGather(len(groups), func(parts []kmsg.Response) {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		for _, part := range parts {
			resp.Groups = append(resp.Groups, part.(*kmsg.OffsetFetchResponse).Groups...)
		}
		if req.Version < 8 {
			asOneGroup(req, resp)
		}
		done(resp)
	})
	for i := range groups {
		r.offsetFetchGroup(req, &groups[i], g.at(i))
	}
}

func (r *request) offsetFetchGroup(req *kmsg.OffsetFetchRequest, og *kmsg.OffsetFetchRequestGroup, done func(kmsg.Response)) {
	sub := &kmsg.OffsetFetchRequest{Version: max(req.Version, 8), RequireStable: req.RequireStable}
	group := *og
	if !r.mayGroup(auth.Describe, og.Group) {
		sub.Groups = []kmsg.OffsetFetchRequestGroup{group}
		done(refusal(sub, kerr.GroupAuthorizationFailed.Code))
		return
	}
	byID := req.Version >= 10
	codes := make([]int16, len(og.Topics))
	if og.Topics != nil {
		group.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	}
	for i := range og.Topics {
		t := og.Topics[i]
		if t.Topic, codes[i] = r.topic(t.Topic, t.TopicID, byID, auth.Describe); codes[i] == 0 {
			group.Topics = append(group.Topics, t)
		}
	}
	sub.Groups = []kmsg.OffsetFetchRequestGroup{group}
	r.submit(og.Group, sub, func(resp kmsg.Response) {
		answer := &resp.(*kmsg.OffsetFetchResponse).Groups[0]
		switch {
		case answer.ErrorCode != 0:
		case og.Topics == nil:
			answer.Topics = r.tellable(answer.Topics, byID)
		default:
			answer.Topics = refusedTopics(og.Topics, codes, answer.Topics)
		}
		done(resp)
	})
}

// tellable drops of all topics of a group those that the requester may not describe or, if it goes by id, that are gone.
func (r *request) tellable(topics []kmsg.OffsetFetchResponseGroupTopic, byID bool) []kmsg.OffsetFetchResponseGroupTopic {
	out := topics[:0]
	for _, t := range topics {
		if !r.mayTopic(auth.Describe, t.Topic) {
			continue
		}
		if byID {
			known := r.image.TopicByName(t.Topic)
			if known == nil {
				continue
			}
			t.TopicID = known.ID
		}
		out = append(out, t)
	}
	return out
}

// refusedTopics puts what was refused behind what the group answered, as Kafka does.
func refusedTopics(asked []kmsg.OffsetFetchRequestGroupTopic, codes []int16, answered []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	out := answered
	for i, t := range asked {
		if codes[i] == 0 {
			continue
		}
		rt := kmsg.NewOffsetFetchResponseGroupTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p, -1, -1, kmsg.StringPtr(""), codes[i]
			rt.Partitions = append(rt.Partitions, rp)
		}
		out = append(out, rt)
	}
	return out
}

// asOneGroup turns an answer into the form below version 8. Versions 0 and 1 have no place for an error but the partitions.
func asOneGroup(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	g := resp.Groups[0]
	resp.Groups = nil
	if g.ErrorCode != 0 {
		failed := refusal(req, g.ErrorCode).(*kmsg.OffsetFetchResponse)
		resp.ErrorCode, resp.Topics = failed.ErrorCode, failed.Topics
		return
	}
	for _, t := range g.Topics {
		rt := kmsg.NewOffsetFetchResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewOffsetFetchResponseTopicPartition()
			rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata, rp.ErrorCode = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata, p.ErrorCode
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
}

func (r *request) offsetDelete(req *kmsg.OffsetDeleteRequest, done func(kmsg.Response)) {
	if !r.mayGroup(auth.Delete, req.Group) {
		done(refusal(req, kerr.GroupAuthorizationFailed.Code))
		return
	}
	codes := make([]int16, len(req.Topics))
	sub := *req
	sub.Topics = nil
	for i, t := range req.Topics {
		if _, codes[i] = r.topic(t.Topic, [16]byte{}, false, auth.Read); codes[i] == 0 {
			sub.Topics = append(sub.Topics, t)
		}
	}
	r.one(&sub, req.Group, auth.Delete, func(resp kmsg.Response) {
		part := resp.(*kmsg.OffsetDeleteResponse)
		if part.ErrorCode != 0 {
			done(part)
			return
		}
		out := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
		for i, t := range req.Topics {
			if codes[i] == 0 {
				out.Topics = append(out.Topics, part.Topics[0])
				part.Topics = part.Topics[1:]
				continue
			}
			rt := kmsg.OffsetDeleteResponseTopic{Topic: t.Topic}
			for _, p := range t.Partitions {
				rt.Partitions = append(rt.Partitions, kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition, ErrorCode: codes[i]})
			}
			out.Topics = append(out.Topics, rt)
		}
		done(out)
	})
}
