"""Adam in one pass over each variable: Sonnet's variables, TensorFlow's fused kernel.

Sonnet composes its step of some twelve operations, each of which reads and writes whole
variables. At 3x2048 memory is what limits a learner's step, so they take longer than
the gradients do.
"""

from __future__ import annotations

from collections.abc import Sequence

import sonnet as snt
import tensorflow as tf


class Adam(snt.optimizers.Adam):
    """`snt.optimizers.Adam` with the same numbers, slots and names of variables.

    TensorFlow's kernel adds epsilon to the square root of the biased second moment v,
    Sonnet to that of the corrected one, v / (1 - beta2^t):

      m^ / (sqrt(v^) + epsilon) = c m / ((1 - beta1^t) (sqrt(v) + c epsilon)),
      c = sqrt(1 - beta2^t)

    so the kernel gets c * epsilon and computes the same step (Kingma and Ba, 2014,
    section 2), up to the rounding of float32.
    """

    def apply(
        self, updates: Sequence[tf.Tensor | None], parameters: Sequence[tf.Variable]
    ) -> None:
        """Applies one step.

        Args:
          updates: float32 gradients, one for each parameter; None leaves its
            parameter as it is.
          parameters: the same variables at every call.

        Raises:
          ValueError: if there is not one update for each parameter.
        """
        if len(updates) != len(parameters):
            raise ValueError(
                f"expected {len(parameters)} updates, one for each parameter, "
                f"got {len(updates)}."
            )
        self._initialize(parameters)
        self.step.assign_add(1)
        step = tf.cast(self.step, tf.float32)
        power_1, power_2 = self.beta1**step, self.beta2**step
        epsilon = self.epsilon * tf.sqrt(1.0 - power_2)
        for update, parameter, m, v in zip(updates, parameters, self.m, self.v):
            if update is None:
                continue
            tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=power_1,
                beta2_power=power_2,
                lr=self.learning_rate,
                beta1=self.beta1,
                beta2=self.beta2,
                epsilon=epsilon,
                grad=update,
            )


OPTIMIZERS = {"fused": Adam, "sonnet": snt.optimizers.Adam}
