package rollout

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("The path of a rollout", func() {
	It("enables flags by two rollouts of Stargate and one of the gateway, and takes them back by one of each", func(ctx SpecContext) {
		s := newSite(ctx, layout{})
		s.plane()
		s.settled()
		before := s.counts()

		policy := s.policy("llama", flagged("a"), flagged("b"))
		s.settled(policy)
		Expect(s.flagsOn()).To(Equal([]string{"a", "b"}))
		Expect(s.since(before)).To(Equal([]int{2, 1}))
	})
})
