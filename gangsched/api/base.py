"""What all border models share."""

from pydantic import BaseModel, ConfigDict, Field


class ApiModel(BaseModel):
    """A part of an API object; unknown fields are the API server's business, not ours."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Condition(ApiModel):
    """A condition as metav1.Condition has it."""

    type: str
    status: str
    reason: str
    message: str = ""
    lastTransitionTime: str = Field(json_schema_extra={"format": "date-time"})  # noqa: N815
    observedGeneration: int | None = Field(  # noqa: N815
        None, description="Not written: kubectl ignores a condition of an earlier generation."
    )
