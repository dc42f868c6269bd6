package controller

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"ottla/internal/metadata"
	"ottla/internal/protocol/records"
	"ottla/internal/uuid"
)

// deleteTopics deletes topics by name or by id. Source: Kafka's ControllerApis.deleteTopics.
func (t *turn) deleteTopics(req *kmsg.DeleteTopicsRequest) answer {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	resp.Topics = []kmsg.DeleteTopicsResponseTopic{}
	wanted := req.Topics
	for i := range req.TopicNames {
		topic := kmsg.NewDeleteTopicsRequestTopic()
		topic.Topic = &req.TopicNames[i]
		wanted = append(wanted, topic)
	}
	asked := map[uuid.UUID]int{}
	found := make([]*metadata.Topic, len(wanted))
	errs := make([]error, len(wanted))
	for i := range wanted {
		if found[i], errs[i] = t.topicToDelete(&wanted[i], req.Version); errs[i] == nil {
			asked[found[i].ID]++
		}
	}
	for i := range wanted {
		rt := kmsg.NewDeleteTopicsResponseTopic()
		rt.Topic, rt.TopicID = wanted[i].Topic, wanted[i].TopicID
		if errs[i] == nil && asked[found[i].ID] > 1 {
			errs[i] = refuse(kerr.InvalidRequest, "Duplicate topic.")
		}
		if errs[i] == nil {
			rt.Topic, rt.TopicID = &found[i].Name, found[i].ID
			t.emit(&records.RemoveTopicRecord{TopicID: found[i].ID})
		}
		rt.ErrorCode, rt.ErrorMessage = codeOf(errs[i])
		resp.Topics = append(resp.Topics, rt)
	}
	return reply(resp)
}

func (t *turn) topicToDelete(req *kmsg.DeleteTopicsRequestTopic, version int16) (*metadata.Topic, error) {
	if !t.config.Bool("delete.topic.enable") {
		if version < 3 {
			return nil, refuse(kerr.InvalidRequest, "Topic deletion is disabled.")
		}
		return nil, refuse(kerr.TopicDeletionDisabled, "Topic deletion is disabled.")
	}
	hasID := req.TopicID != uuid.Zero
	switch {
	case req.Topic == nil && !hasID:
		return nil, refuse(kerr.InvalidRequest, "Neither topic name nor id were specified.")
	case req.Topic != nil && hasID:
		return nil, refuse(kerr.InvalidRequest, "You may not specify both topic name and topic id.")
	case req.Topic != nil:
		return t.topicFor(*req.Topic)
	}
	if topic := t.image().Topic(req.TopicID); topic != nil {
		return topic, nil
	}
	return nil, refuse(kerr.UnknownTopicID, "This server does not host this topic ID.")
}
